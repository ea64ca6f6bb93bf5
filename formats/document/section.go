package document

import (
	"reflect"
	"slices"
	"strings"
)

// Section is one possible value of the field with the tag section.
type Section struct {
	Name    string // the field's name in the document
	Type    reflect.Type
	Schema  string
	Options []Option // the options of documents with this section
}

// Sectioned is a document with a section. If it has a field kind, that says which.
type Sectioned interface{ Sections() []Section }

// sectionNames returns the names of the fields that a section may have.
func (info *structInfo) sectionNames() []string {
	var out []string
	for i := range info.sections {
		out = append(out, info.sections[i].Name)
	}
	return out
}

// sectionName returns the name of the field for a section of this type, or "" if there is none.
func (info *structInfo) sectionName(typ reflect.Type) string {
	for i := range info.sections {
		if info.sections[i].Type == typ {
			return info.sections[i].Name
		}
	}
	return ""
}

// findOptions finds which options a plan may have, before its fields are bound. They depend on its kind, which may
// stand anywhere in the document. An unknown kind is recorded as an error, and the options are then not checked.
func (b *binder) findOptions(n *node, info *structInfo) {
	kind := n.field("kind")
	if _, has := info.byName["kind"]; !has || kind == nil || kind.kind != stringNode {
		return
	}
	if i := slices.IndexFunc(info.sections, func(s Section) bool { return s.Name == kind.text }); i >= 0 {
		b.options = info.sections[i].Options
		return
	}
	names := info.sectionNames()
	b.findings.add(b.src.fail(kind.pos, "kind", kind.describe(), strings.Join(names, ", "), DidYouMean(kind.text, names)))
}

// section sets v's section from a field if the field is one of the sections, and returns whether it is. A second
// section is an error.
func (b *binder) section(k *key, item *node, info *structInfo, v reflect.Value) bool {
	f := &info.fields[info.section]
	for _, e := range info.sections {
		if e.Name != k.name {
			continue
		}
		field := v.FieldByIndex(f.index)
		mark := len(b.path)
		if !field.IsNil() {
			b.field(k.name)
			otherName := info.sectionName(field.Elem().Type()) + " and " + k.name
			b.findings.add(b.src.fail(item.pos, string(b.path), otherName, "exactly one of "+List(info.sectionNames()), "make two "+f.table+"s"))
			b.path = b.path[:mark]
			return true
		}
		b.field(k.name)
		section := reflect.New(e.Type).Elem()
		b.nullable = false // of the field before
		b.bind(item, section)
		field.Set(section)
		b.path = b.path[:mark]
		return true
	}
	return false
}

// List returns "a, b and c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
