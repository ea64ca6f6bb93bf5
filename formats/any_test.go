package formats

// Read reads a document of any kind; doc is a *Profile, *Cluster and so on.
func Read(path string) (kind string, doc any, err error) {
	data, err := readFile(path)
	if err != nil {
		return "", nil, err
	}
	return decode(data, path, "")
}

// Decode is Read for bytes at hand; name is what errors call them, and its
// ending (.json, .yaml, .yml) tells the syntax. Without a known ending, text
// that starts with a brace is JSON.
func Decode(data []byte, name string) (kind string, doc any, err error) {
	return decode(string(data), name, "")
}

// DecodeCluster is ReadCluster for bytes at hand.
func DecodeCluster(data []byte, name string) (*Cluster, error) {
	return decodeAs[*Cluster](data, name, KindCluster)
}
