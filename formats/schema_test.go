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
	"go.yaml.in/yaml/v3"

	"inferplan/formats/document"
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
		t.Run(k.Name, func(t *testing.T) {
			data, err := Schema(k.Name)
			if err != nil {
				t.Fatal(err)
			}
			var root schemaDoc
			if err := json.Unmarshal(data, &root); err != nil {
				t.Fatal(err)
			}
			m := &matcher{t: t, defs: root.Defs, used: map[string]bool{}}
			m.match(&root, reflect.TypeOf(k.NewDocument()).Elem(), k.Name)
			if c := root.Properties["format"].Const; c != k.Format {
				t.Errorf("format is %q, want %q", c, k.Format)
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

func (m *matcher) match(s *schemaDoc, typ reflect.Type, fieldPath string) {
	if s == nil {
		m.t.Errorf("%s: missing", fieldPath)
		return
	}
	name := ""
	if s.Ref != "" {
		name = strings.TrimPrefix(s.Ref, "#/$defs/")
		first := !m.used[name]
		m.used[name] = true
		if s = m.defs[name]; s == nil {
			m.t.Errorf("%s: no definition %s", fieldPath, name)
			return
		}
		if !first && typ.Kind() == reflect.Struct && typ != reflect.TypeFor[document.SLO]() {
			if name != typ.Name() {
				m.t.Errorf("%s: definition %s for Go type %s", fieldPath, name, typ.Name())
			}
			return
		}
	}
	want := ""
	switch typ {
	case reflect.TypeFor[document.Micros]():
		if name != "Micros" {
			m.t.Errorf("%s: is not of definition Micros", fieldPath)
		}
		want = "number"
	case reflect.TypeFor[document.SLO]():
		if name != "SLO" {
			m.t.Errorf("%s: is not of definition SLO", fieldPath)
		}
		want = "string"
	case reflect.TypeFor[document.Bytes]():
		if name != "Bytes" {
			m.t.Errorf("%s: is not of definition Bytes", fieldPath)
		}
		return
	case reflect.TypeFor[document.Values]():
		return // made from the table that binding uses, too
	}
	if typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8 {
		return // carried as it is
	}
	switch {
	case want != "":
	case typ.Kind() == reflect.Pointer:
		m.match(s, typ.Elem(), fieldPath)
		return
	case typ.Kind() == reflect.Struct:
		m.object(s, typ, fieldPath, name)
		return
	case typ.Kind() == reflect.Slice || typ.Kind() == reflect.Array:
		if s.Type != "array" {
			m.t.Errorf("%s: type %v, want array", fieldPath, s.Type)
		}
		if n := 0; typ.Kind() == reflect.Array {
			if n = typ.Len(); s.MinItems == nil || *s.MinItems != n || s.MaxItems == nil || *s.MaxItems != n {
				m.t.Errorf("%s: does not hold exactly %d items", fieldPath, n)
			}
		}
		m.match(s.Items, typ.Elem(), fieldPath+"[]")
		return
	case typ.Kind() == reflect.Map:
		var value schemaDoc
		if s.Type != "object" || json.Unmarshal(s.AdditionalProperties, &value) != nil {
			m.t.Errorf("%s: is no map", fieldPath)
		}
		m.match(&value, typ.Elem(), fieldPath+"{}")
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
		m.t.Errorf("%s: type %v, want %s", fieldPath, s.Type, want)
	}
}

func (m *matcher) object(s *schemaDoc, typ reflect.Type, fieldPath, name string) {
	if name != "" && name != typ.Name() {
		m.t.Errorf("%s: definition %s for Go type %s", fieldPath, name, typ.Name())
	}
	text, short := s.Type.([]any) // a module may be its name alone
	short = short && typ == reflect.TypeFor[Module]() && slices.Equal(text, []any{"object", "string"})
	if s.Type != "object" && !short || string(s.AdditionalProperties) != "false" {
		m.t.Errorf("%s: is not a closed object", fieldPath)
	}
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(typ) {
		if f.Tag.Get("section") != "" {
			for _, e := range reflect.New(typ).Interface().(document.Sectioned).Sections() {
				known[e.Name] = true
				m.match(s.Properties[e.Name], e.Type, fieldPath+"."+e.Name)
			}
			continue
		}
		field, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || field == "" || field == "-" {
			continue
		}
		known[field] = true
		optional := strings.Contains(rest, "omitempty") || strings.Contains(rest, "omitzero")
		path := fieldPath + "." + field
		p := s.Properties[field]
		m.match(p, f.Type, path)
		if slices.Contains(s.Required, field) == optional {
			m.t.Errorf("%s: required is %v, but Go leaves it out when empty: %v", path, !optional, optional)
		}
		if p == nil {
			continue
		}
		_, isPointer := p.Type.([]any)
		if nullable := f.Type.Kind() == reflect.Pointer && !optional; isPointer != nullable {
			m.t.Errorf("%s: may be null in the schema: %v, in Go: %v", path, isPointer, nullable)
		}
	}
	for f := range s.Properties {
		if !known[f] {
			m.t.Errorf("%s.%s: no such field in Go type %s", fieldPath, f, typ.Name())
		}
	}
	for _, f := range s.Required {
		if !known[f] {
			m.t.Errorf("%s: requires %s, which Go type %s lacks", fieldPath, f, typ.Name())
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
			kind, doc, err := Decode(data, file)
			if err != nil {
				t.Error(err)
				continue
			}
			value := generic(t, data)
			if value.(map[string]any)["format"] != kindTable.Find(kind).Format { // an older version: what it becomes
				if data, err = document.Marshal(doc); err != nil {
					t.Fatal(err)
				}
				value = generic(t, data)
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

// generic reads JSON or YAML without a type.
func generic(t *testing.T, data []byte) any {
	t.Helper()
	var value any
	err := yaml.Unmarshal(data, &value)
	if err == nil {
		data, err = json.Marshal(value)
	}
	if err == nil {
		value, err = jsonschema.UnmarshalJSON(bytes.NewReader(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}
