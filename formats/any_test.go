package formats

// Read reads a document of any kind; doc is a *Profile, *Cluster and so on.
func Read(path string) (kind string, doc any, err error) {
	data, err := readFile(path)
	if err != nil {
		return "", nil, err
	}
	return decode(data, path, "")
}

// DecodeCluster is ReadCluster for bytes.
func DecodeCluster(data []byte, name string) (*Cluster, error) {
	return decodeAs[*Cluster](data, name, KindCluster)
}
