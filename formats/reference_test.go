package formats

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var recordGuards = flag.Bool("record-guards", false, "write docs/reference/documents.md anew")

// schemaField is a value of a JSON Schema, whose fields are in the order of the text.
type schemaField struct{ node *yaml.Node }

// field returns a field of an object; it is empty if the object has none of this name.
func (s schemaField) field(name string) schemaField {
	if s.node != nil {
		for i := 0; i+1 < len(s.node.Content); i += 2 {
			if s.node.Kind == yaml.MappingNode && s.node.Content[i].Value == name {
				return schemaField{s.node.Content[i+1]}
			}
		}
	}
	return schemaField{}
}

// text returns a scalar.
func (s schemaField) text() string {
	if s.node == nil {
		return ""
	}
	return s.node.Value
}

// list returns the items of a list, as texts.
func (s schemaField) list() (out []string) {
	if s.node != nil && s.node.Kind == yaml.SequenceNode {
		for _, item := range s.node.Content {
			out = append(out, item.Value)
		}
	}
	return out
}

// definition returns the name of the definition that a field refers to.
func (s schemaField) definition() string {
	return strings.TrimPrefix(s.field("$ref").text(), "#/$defs/")
}

// units are the units that the ends of fields' names stand for.
var units = []struct{ end, unit string }{
	{"_usd_per_hour", "US dollars an hour"}, {"_us", "µs"}, {"_ns", "ns"}, {"_bytes", "bytes"}, {"_rps", "requests/s"}, {"_qps", "requests/s"},
	{"_gflops", "1e9 operations/s"}, {"_mhz", "MHz"}, {"_tokens", "tokens"}, {"_seconds", "s"},
}

// unitOf returns the unit of a field by its name; it is empty if the name has none.
func unitOf(name string) string {
	for _, u := range units {
		if strings.HasSuffix("_"+name, u.end) {
			return u.unit
		}
	}
	return ""
}

// documentReference writes the page of all fields.
type documentReference struct {
	out     bytes.Buffer
	written map[string]string // definitions that have a heading, with their text
	missing []string          // fields without a description
}

// wrapped returns a text in lines of at most 160 bytes, where its words allow it.
func wrapped(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > 160 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}

// typeOf returns the type of a field: a word, or a link to a definition.
func (r *documentReference) typeOf(s schemaField) string {
	if name := s.definition(); name != "" {
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	if words := s.field("enum").list(); words != nil {
		return "`" + strings.Join(words, "`, `") + "`"
	}
	if word := s.field("const").text(); word != "" {
		return "`" + word + "`"
	}
	name := s.field("type").text()
	if list := s.field("type").list(); list != nil {
		name = list[0]
		if slices.Contains(list, "null") {
			name = "number, or null"
		}
	}
	switch name {
	case "array":
		return "list of " + r.typeOf(s.field("items"))
	case "object":
		if values := s.field("additionalProperties"); values.field("type").text() != "" || values.definition() != "" {
			return "map to " + r.typeOf(values)
		}
		return "object"
	case "integer":
		return "whole number"
	case "boolean":
		return "true or false"
	case "string":
		return "text"
	}
	return name
}

// boundsOf returns what a schema asks of a value, in words.
func boundsOf(s schemaField) string {
	var out []string
	for _, bound := range []struct{ key, sign string }{{"minimum", "≥"}, {"exclusiveMinimum", ">"}, {"maximum", "≤"}, {"exclusiveMaximum", "<"}} {
		if value := s.field(bound.key).text(); value != "" {
			out = append(out, bound.sign+" "+value)
		}
	}
	least, most := s.field("minItems").text(), s.field("maxItems").text()
	switch {
	case least != "" && least == most:
		out = append(out, least+" items")
	case least != "":
		out = append(out, "≥ "+least+" items")
	}
	if most != "" && least != most {
		out = append(out, "≤ "+most+" items")
	}
	if length := s.field("maxLength").text(); length != "" {
		out = append(out, "≤ "+length+" characters")
	}
	if s.field("minLength").text() == "1" {
		out = append(out, "not empty")
	}
	if pattern := s.field("pattern").text(); pattern != "" && len(pattern) < 40 {
		out = append(out, "matches `"+strings.ReplaceAll(pattern, "|", `\|`)+"`")
	}
	return strings.Join(out, ", ")
}

// object writes the fields of an object under a heading, and then the definitions that they refer to.
func (r *documentReference) object(heading, name string, s, definitions schemaField) {
	fmt.Fprintf(&r.out, "\n%s %s\n\n%s\n", heading, name, wrapped(s.field("description").text()))
	properties := s.field("properties")
	if properties.node == nil {
		fmt.Fprintf(&r.out, "\nType: %s", r.typeOf(s))
		if bounds := boundsOf(s); bounds != "" {
			fmt.Fprintf(&r.out, ", %s", bounds)
		}
		r.out.WriteString(".\n")
		return
	}
	required := s.field("required").list()
	r.out.WriteString("\n| field | type | unit, bounds | default | meaning |\n|---|---|---|---|---|\n")
	for i := 0; i+1 < len(properties.node.Content); i += 2 {
		r.row(name, properties.node.Content[i].Value, schemaField{properties.node.Content[i+1]}, required, definitions)
	}
	for i := 0; i+1 < len(properties.node.Content); i += 2 {
		r.follow(schemaField{properties.node.Content[i+1]}, definitions)
	}
}

// row writes a field.
func (r *documentReference) row(object, name string, s schemaField, required []string, definitions schemaField) {
	meaning, bounds, byDefault := s.field("description").text(), boundsOf(s), s.field("default").text()
	if unit := unitOf(name); unit != "" {
		bounds = strings.TrimSuffix(unit+", "+bounds, ", ")
	}
	if slices.Contains(required, name) {
		byDefault = "required"
	}
	target := definitions.field(s.definition())
	if item := s.field("items").definition(); item != "" {
		target = definitions.field(item)
	}
	if meaning == "" && target.field("properties").node != nil {
		meaning = target.field("description").text()
	}
	if name == "format" {
		meaning = "Kind and version of the document."
	}
	if meaning == "" {
		r.missing = append(r.missing, object+"."+name)
	}
	fmt.Fprintf(&r.out, "| `%s` | %s | %s | %s | %s |\n", name, r.typeOf(s), bounds, byDefault, strings.ReplaceAll(meaning, "|", `\|`))

	// An object without a definition of its own has its fields in the same table.
	if properties := s.field("properties"); properties.node != nil {
		for i := 0; i+1 < len(properties.node.Content); i += 2 {
			inner := properties.node.Content[i].Value
			if slices.Contains(s.field("required").list(), inner) {
				required = append(slices.Clone(required), name+"."+inner)
			}
			r.row(object, name+"."+inner, schemaField{properties.node.Content[i+1]}, required, definitions)
		}
	}
}

// follow writes the definitions that a field refers to and that are not on the page yet.
func (r *documentReference) follow(s, definitions schemaField) {
	for _, t := range []schemaField{s, s.field("items"), s.field("items").field("items"), s.field("additionalProperties")} {
		name := t.definition()
		if name == "" || r.written[name] != "" {
			continue
		}
		target := definitions.field(name)
		text, _ := yaml.Marshal(target.node)
		r.written[name] = string(text)
		r.object("###", name, target, definitions)
	}
	if properties := s.field("properties"); properties.node != nil {
		for i := 0; i+1 < len(properties.node.Content); i += 2 {
			r.follow(schemaField{properties.node.Content[i+1]}, definitions)
		}
	}
}

// docs/reference/documents.md has every field of every kind of document, with a description.
func TestDocumentReference(t *testing.T) {
	r := &documentReference{written: map[string]string{}}
	r.out.WriteString("# Fields of documents\n\nEvery field of every document, from the JSON Schemas that `plan schema KIND` prints. [Documents](../documents.md) has an example of each.\n" +
		"Made by `go test ./formats -run TestDocumentReference -record-guards`.\n")
	for _, kind := range Kinds() {
		text, err := Schema(kind)
		if err != nil {
			t.Fatal(err)
		}
		var root yaml.Node
		if err := yaml.Unmarshal(text, &root); err != nil {
			t.Fatal(err)
		}
		schema := schemaField{root.Content[0]}
		definitions := schema.field("$defs")

		// A definition of the same name means the same in all documents, because it is written once.
		for i := 0; i+1 < len(definitions.node.Content); i += 2 {
			name := definitions.node.Content[i].Value
			again, _ := yaml.Marshal(definitions.node.Content[i+1])
			if first := r.written[name]; first != "" && first != string(again) {
				t.Errorf("%s: $defs/%s differs from the definition of that name in another document", kind, name)
			}
		}
		r.object("##", kind, schema, definitions)
		for i := 0; i+1 < len(definitions.node.Content); i += 2 {
			if name := definitions.node.Content[i].Value; strings.HasSuffix(name, "Options") {
				r.written[name] = name
				r.object("###", name, definitions.field(name), definitions)
			}
		}
	}
	for _, field := range r.missing {
		t.Errorf("%s has no description", field)
	}

	path := filepath.Join("..", "docs", "reference", "documents.md")
	if *recordGuards {
		if err := os.WriteFile(path, r.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, r.out.Bytes()) {
		t.Errorf("%s does not have the fields of the schemas: make it anew with -record-guards", path)
	}
}
