package formats

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed schema/*.json
var schemas embed.FS

// Schema returns the JSON Schema (draft 2020-12) of a kind of document, complete
// in itself. A test holds it against the Go types.
func Schema(kind string) ([]byte, error) {
	if kindOf(kind) == nil {
		e := &Error{Found: "the kind " + quote(kind), Expected: strings.Join(Kinds(), ", ")}
		if near := nearest(kind, Kinds()); near != "" {
			e.Hint = "did you mean " + near + "?"
		}
		return nil, e
	}
	data, err := schemas.ReadFile("schema/" + kind + ".json")
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", kind, err)
	}
	return data, nil
}
