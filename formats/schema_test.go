package formats

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaDoc is the part of a JSON Schema that has a counterpart in a Go type.
type schemaDoc struct {
	Ref                  string                `json:"$ref"`
	Type                 any                   `json:"type"`
	Enum                 []string              `json:"enum"`
	Const                string                `json:"const"`
	Required             []string              `json:"required"`
	Properties           map[string]*schemaDoc `json:"properties"`
	AdditionalProperties json.RawMessage       `json:"additionalProperties"`
	Items                *schemaDoc            `json:"items"`
	MinItems             *int                  `json:"minItems"`
	MaxItems             *int                  `json:"maxItems"`
	ExclusiveMinimum     *float64              `json:"exclusiveMinimum"`
	Minimum              *float64              `json:"minimum"`
	Defs                 map[string]*schemaDoc `json:"$defs"`
}

// TestSchemasMatchTypes walks each schema beside its Go type: every field on
// both sides, of the same type, required where Go always writes it.
func TestSchemasMatchTypes(t *testing.T) {
	for _, k := range kindTable {
		t.Run(k.name, func(t *testing.T) {
			data, err := Schema(k.name)
			if err != nil {
				t.Fatal(err)
			}
			var root schemaDoc
			if err := json.Unmarshal(data, &root); err != nil {
				t.Fatal(err)
			}
			m := &matcher{t: t, defs: root.Defs, used: map[string]bool{}}
			m.match(&root, reflect.TypeOf(k.make()).Elem(), k.name)
			if c := root.Properties["format"].Const; c != k.format {
				t.Errorf("format is %q, want %q", c, k.format)
			}
			for name := range root.Defs {
				if !m.used[name] && !strings.HasSuffix(name, "Options") {
					t.Errorf("$defs/%s is used nowhere", name)
				}
			}
		})
	}
}

type matcher struct {
	t    *testing.T
	defs map[string]*schemaDoc
	used map[string]bool
}

func (m *matcher) match(s *schemaDoc, typ reflect.Type, at string) {
	if s == nil {
		m.t.Errorf("%s: missing", at)
		return
	}
	name := ""
	if s.Ref != "" {
		name = strings.TrimPrefix(s.Ref, "#/$defs/")
		first := !m.used[name]
		m.used[name] = true
		if s = m.defs[name]; s == nil {
			m.t.Errorf("%s: no definition %s", at, name)
			return
		}
		if !first && typ.Kind() == reflect.Struct && typ != sloType {
			if name != typ.Name() {
				m.t.Errorf("%s: definition %s for Go type %s", at, name, typ.Name())
			}
			return
		}
	}
	want := ""
	switch typ {
	case microsType:
		if name != "Micros" {
			m.t.Errorf("%s: is not of definition Micros", at)
		}
		want = "number"
	case sloType:
		if name != "SLO" {
			m.t.Errorf("%s: is not of definition SLO", at)
		}
		want = "string"
	case bytesType:
		if name != "Bytes" {
			m.t.Errorf("%s: is not of definition Bytes", at)
		}
		return
	case valuesType:
		return // made from the table that binding uses, too
	}
	if isRaw(typ) {
		return
	}
	switch {
	case want != "":
	case typ.Kind() == reflect.Pointer:
		m.match(s, typ.Elem(), at)
		return
	case typ.Kind() == reflect.Struct:
		m.object(s, typ, at, name)
		return
	case typ.Kind() == reflect.Slice || typ.Kind() == reflect.Array:
		if s.Type != "array" {
			m.t.Errorf("%s: type %v, want array", at, s.Type)
		}
		if n := 0; typ.Kind() == reflect.Array {
			if n = typ.Len(); s.MinItems == nil || *s.MinItems != n || s.MaxItems == nil || *s.MaxItems != n {
				m.t.Errorf("%s: does not hold exactly %d items", at, n)
			}
		}
		m.match(s.Items, typ.Elem(), at+"[]")
		return
	case typ.Kind() == reflect.Map:
		var value schemaDoc
		if s.Type != "object" || json.Unmarshal(s.AdditionalProperties, &value) != nil {
			m.t.Errorf("%s: is no map", at)
		}
		m.match(&value, typ.Elem(), at+"{}")
		return
	case typ.Kind() == reflect.String:
		want = "string"
	case typ.Kind() == reflect.Float64:
		want = "number"
	case typ.Kind() == reflect.Bool:
		want = "boolean"
	default:
		want = "integer"
	}
	got := s.Type
	if list, ok := got.([]any); ok && len(list) == 2 && list[1] == "null" {
		got = list[0]
	}
	if want == "string" && (s.Enum != nil || s.Const != "") {
		return
	}
	if got != want {
		m.t.Errorf("%s: type %v, want %s", at, s.Type, want)
	}
}

func (m *matcher) object(s *schemaDoc, typ reflect.Type, at, name string) {
	if name != "" && name != typ.Name() {
		m.t.Errorf("%s: definition %s for Go type %s", at, name, typ.Name())
	}
	text, short := s.Type.([]any) // a module may be its name alone
	short = short && typ == moduleType && slices.Equal(text, []any{"object", "string"})
	if s.Type != "object" && !short || string(s.AdditionalProperties) != "false" {
		m.t.Errorf("%s: is not a closed object", at)
	}
	info := infoOf(typ)
	for i := range info.fields {
		f := &info.fields[i]
		if i == info.section {
			for _, e := range sections(f.table) {
				m.match(s.Properties[e.name], e.typ, at+"."+e.name)
			}
			continue
		}
		path := at + "." + f.name
		p := s.Properties[f.name]
		m.match(p, f.typ, path)
		if slices.Contains(s.Required, f.name) == f.optional {
			m.t.Errorf("%s: required is %v, but Go leaves it out when empty: %v", path, !f.optional, f.optional)
		}
		if p == nil {
			continue
		}
		_, isPointer := p.Type.([]any)
		if nullable := f.typ.Kind() == reflect.Pointer && !f.optional; isPointer != nullable {
			m.t.Errorf("%s: may be null in the schema: %v, in Go: %v", path, isPointer, nullable)
		}
	}
	for f := range s.Properties {
		if _, ok := info.byName[f]; !ok && (info.section < 0 || !slices.Contains(sectionNames(info.fields[info.section].table), f)) {
			m.t.Errorf("%s.%s: no such field in Go type %s", at, f, typ.Name())
		}
	}
	for _, f := range s.Required {
		if _, ok := info.byName[f]; !ok {
			m.t.Errorf("%s: requires %s, which Go type %s lacks", at, f, typ.Name())
		}
	}
}

func TestSchemaOfUnknownKind(t *testing.T) {
	_, err := Schema("clutser")
	if err == nil || !strings.Contains(err.Error(), "did you mean cluster?") {
		t.Errorf("got %v", err)
	}
}

// TestSchemasAcceptExamples checks that what decodes also passes the schema,
// with an implementation of JSON Schema that is not ours.
func TestSchemasAcceptExamples(t *testing.T) {
	compiled := map[string]*jsonschema.Schema{}
	for _, kind := range Kinds() {
		data, _ := Schema(kind)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(doc.(map[string]any)["$id"].(string), doc); err != nil {
			t.Fatal(err)
		}
		if compiled[kind], err = c.Compile(doc.(map[string]any)["$id"].(string)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, pattern := range []string{"../testdata/compat/*.*", "../testdata/formats/good/*.*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s", pattern)
		}
		for _, file := range files {
			if strings.HasSuffix(file, ".csv") {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, root, err := parse(string(data), file)
			if err != nil {
				t.Fatal(err)
			}
			kind, doc, err := Decode(data, file)
			if err != nil {
				t.Error(err)
				continue
			}
			if root.field("format").text != kindOf(kind).format { // an older version: what it becomes
				if data, err = Marshal(doc); err == nil {
					_, root, err = parse(string(data), "upgraded.json")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(appendCompact(nil, &root)))
			if err != nil {
				t.Fatal(err)
			}
			if err := compiled[kind].Validate(value); err != nil {
				t.Errorf("%s does not pass the schema: %v", file, err)
			}
			seen[kind] = true
		}
	}
	for _, kind := range Kinds() {
		if !seen[kind] {
			t.Errorf("no example of a %s", kind)
		}
	}
}
