package formats

import (
	"bytes"
	"reflect"

	"inferplan/formats/document"
)

// Read reads a document of any kind; doc is a *Profile, *Cluster and so on.
func Read(path string) (kind string, doc any, err error) {
	d, err := document.Read[document.Document](kindTable, path, "")
	for _, k := range kindTable {
		if reflect.TypeOf(k.NewDocument()) == reflect.TypeOf(d) {
			kind = k.Name
		}
	}
	return kind, d, err
}

// DecodeCluster is ReadCluster for bytes.
func DecodeCluster(data []byte, name string) (*Cluster, error) {
	return document.Decode[*Cluster](kindTable, string(data), name, KindCluster)
}

// maxFindings is how many findings an error has at most.
const maxFindings = 20

// marshalValid is Write to bytes.
func marshalValid(doc any) ([]byte, error) {
	var b bytes.Buffer
	err := document.Write(&b, doc)
	return b.Bytes(), err
}

// findOption returns the option of that name, or nil.
func findOption(list []document.Option, name string) *document.Option {
	return document.First(list, func(o *document.Option) bool { return o.Name == name })
}
