package formats

import (
	"embed"
	"strings"

	"inferplan/formats/document"
)

//go:embed schema/*.json
var schemas embed.FS

// schemaFile is the text of a file below schema/, without its ending.
func schemaFile(name string) string {
	data, err := schemas.ReadFile("schema/" + name + ".json")
	if err != nil {
		return "" // a test reads them all
	}
	return string(data)
}

// Schema returns the JSON Schema (draft 2020-12) of a kind of document, complete
// in itself. Where a document has a section, the schemas of all sections and of
// the options of their kinds are in it. A test holds it against the Go types.
func Schema(kind string) ([]byte, error) {
	k := kindTable.Find(kind)
	if k == nil {
		return nil, &Error{Found: "the kind " + document.Quote(kind), Expected: strings.Join(Kinds(), ", "), Hint: DidYouMean(kind, Kinds())}
	}
	if d, ok := k.Make().(document.Sectioned); ok {
		return document.Schema(schemaFile(kind), kind, d.Sections())
	}
	return []byte(schemaFile(kind)), nil
}
