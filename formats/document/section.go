package document

import (
	"reflect"
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
	return Map(info.sections, func(s *Section) string { return s.Name })
}

// sectionName returns the name of the field for a section of this type, or "" if there is none.
func (info *structInfo) sectionName(typ reflect.Type) string {
	if s := First(info.sections, func(s *Section) bool { return s.Type == typ }); s != nil {
		return s.Name
	}
	return ""
}

// findOptions finds which options a plan may have, before its fields are bound. They depend on its kind, which may
// stand anywhere in the document. An unknown kind is recorded as an error, and the options are then not checked. It
// sets b.options.
func (b *binder) findOptions(n *node, info *structInfo) {
	kind := n.field("kind")
	if _, has := info.byName["kind"]; !has || kind == nil || kind.kind != stringNode {
		return
	}
	if s := First(info.sections, func(s *Section) bool { return s.Name == kind.text }); s != nil {
		b.options = s.Options
		return
	}
	names := info.sectionNames()
	b.findings.add(b.src.fail(kind.pos, "kind", kind.describe(), strings.Join(names, ", "), DidYouMean(kind.text, names)))
}

// section sets v's section from a field if the field is one of the sections, and returns whether it is. A second
// section is an error.
func (b *binder) section(k *key, item *node, info *structInfo, v reflect.Value) bool {
	e := First(info.sections, func(s *Section) bool { return s.Name == k.name })
	if e == nil {
		return false
	}
	f, mark := &info.fields[info.section], len(b.path)
	field := v.FieldByIndex(f.index)
	b.field(k.name)
	if !field.IsNil() {
		otherName := info.sectionName(field.Elem().Type()) + " and " + k.name
		b.findings.add(b.src.fail(item.pos, string(b.path), otherName, "exactly one of "+List(info.sectionNames()), "make two "+f.table+"s"))
	} else {
		section := reflect.New(e.Type).Elem()
		b.nullable = false // of the field before
		b.bind(item, section)
		field.Set(section)
	}
	b.path = b.path[:mark]
	return true
}

// List returns "a, b and c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
