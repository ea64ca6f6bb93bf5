package document

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// structInfo describes a struct type for binding and writing.
type structInfo struct {
	fields []fieldInfo // the fields in the order of the type, which is the order of writing
	byName map[string]int
	names  []string
	// section is the index of the field whose name in the document depends on the kind, or -1. sections are the
	// possible sections.
	section  int
	sections []Section
}

// NameSetter is a struct for which a document may have only a name.
type NameSetter interface{ SetName(name string) }

// WholeNumber is an integer that has another form in memory than in documents.
type WholeNumber interface {
	SetWholeValue(n int64)
	WholeValue() int64
}

type fieldInfo struct {
	name     string
	index    []int // path of the field through embedded structs
	typ      reflect.Type
	optional bool   // left out of the file if it is zero or empty
	empty    bool   // an empty list is written, because it means something else than a missing one
	def      string // the value of a missing field; an explicit zero is then an error
	table    string // for a section's field, the name of documents with sections
	rule     string // the name of the rule of its values, see Rule
	words    *Rule  // the rule, if its tag lists words
}

var structInfos sync.Map // reflect.Type to *structInfo

// infoOf returns how documents name the fields of a struct type: from the json tags, with what may be left out and
// the defaults. It is computed once per type. A field with the tag "section" holds one of several types, chosen by
// the name of a field in the document. The tags default and check hold a default and the name of a rule.
func infoOf(t reflect.Type) *structInfo {
	if v, ok := structInfos.Load(t); ok {
		return v.(*structInfo)
	}
	info := &structInfo{byName: map[string]int{}, section: -1}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		if table := f.Tag.Get("section"); table != "" {
			info.section = len(info.fields)
			info.sections = reflect.New(t).Interface().(Sectioned).Sections()
			info.fields = append(info.fields, fieldInfo{index: f.Index, typ: f.Type, optional: true, table: table})
			continue
		}
		if f.Anonymous || !f.IsExported() || tag == "-" || tag == "" {
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		info.byName[name] = len(info.fields)
		info.names = append(info.names, name)
		info.fields = append(info.fields, fieldInfo{name: name, index: f.Index, typ: f.Type,
			optional: strings.Contains(rest, "omitempty") || strings.Contains(rest, "omitzero"), empty: strings.Contains(rest, "omitzero"), def: f.Tag.Get("default"), rule: f.Tag.Get("check"), words: wordsRule(f.Tag.Get("check"))})
	}
	v, _ := structInfos.LoadOrStore(t, info)
	return v.(*structInfo)
}

var (
	microsType   = reflect.TypeFor[Micros]()
	sloType      = reflect.TypeFor[SLO]()
	durationType = reflect.TypeFor[Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
)

// binder fills Go values from nodes and collects findings about values that do not fit.
type binder struct {
	src      *source
	findings findings
	path     []byte   // the path of the current node
	nullable bool     // the current field may be null: a pointer that is always written
	partial  bool     // skip unknown fields
	options  []Option // the options of the plan's kind
}

// fail records that the value n is not what the current path expects, unless enough findings are recorded.
func (b *binder) fail(n *node, expected, hint string) {
	if b.findings.isFull() {
		return
	}
	b.findings.add(b.src.fail(n.pos, string(b.path), n.describe(), expected, hint))
}

// bind sets v, a field of a document's Go type, from the node n, by v's type: first the types that documents write in
// a form of their own, such as times and sizes, then the others by their kind. What does not fit is recorded as a
// finding at b.path, and v stays as it was.
func (b *binder) bind(n *node, v reflect.Value) {
	// Types with a form of their own come first.
	switch v.Type() {
	case microsType:
		b.micros(n, v)
		return
	case sloType:
		b.unit(n, v, "a latency target", "write text with a unit: \"200ms\", \"165577.2us\", or \"5x\" for 5 times the fastest batch-1 latency", false,
			func(s string) (any, error) { return ParseSLO(s) })
		return
	case durationType:
		b.unit(n, v, "a duration", "write text with a unit: \"30s\", \"200ms\", \"5m\"", false,
			func(s string) (any, error) { return ParseDuration(s) })
		return
	case bytesType:
		b.unit(n, v, "a size", "write a whole number of bytes or text with a unit: \"24GiB\", \"512MB\"", true,
			func(s string) (any, error) { return ParseMemory(s) })
		return
	case valuesType:
		b.values(n, v)
		return
	}

	// All other types follow their kind.
	switch v.Kind() {
	case reflect.Pointer:
		if n.kind == nullNode && b.nullable {
			v.SetZero()
			return
		}
		p := reflect.New(v.Type().Elem())
		b.bind(n, p.Elem())
		v.Set(p)
	case reflect.Struct:
		if n.kind == stringNode {
			if setter, ok := v.Addr().Interface().(NameSetter); ok {
				setter.SetName(n.text)
				return
			}
		}
		b.object(n, v)
	case reflect.Slice:
		b.slice(n, v)
	case reflect.Array:
		b.array(n, v)
	case reflect.Map:
		b.mapping(n, v)
	case reflect.String:
		if n.kind != stringNode {
			hint := ""
			if n.kind == numberNode || n.kind == boolNode {
				hint = "put it in quotes"
			}
			b.fail(n, "text", hint)
			return
		}
		v.SetString(n.text)
	case reflect.Bool:
		if n.kind != boolNode {
			b.fail(n, "true or false", "")
			return
		}
		v.SetBool(n.text == "true")
	case reflect.Float32, reflect.Float64:
		b.float(n, v)
	default:
		b.integer(n, v)
	}
}

// object sets the struct v from the object n. Fields that v does not have are errors unless b.partial is set, and
// required fields that n leaves out are errors. Of a type with sections (one of several types, chosen by the name of
// the field), the section is bound too.
func (b *binder) object(n *node, v reflect.Value) {
	if n.kind != objectNode {
		b.fail(n, "an object", "")
		return
	}
	info := infoOf(v.Type())
	if info.section >= 0 {
		b.findOptions(n, info)
	}
	var seenFields uint64 // a bit per field; no document type has more than 64
	allSeen := false      // whether seenFields has all fields of n, also those that come later
	mark := len(b.path)

	// Bind the fields that the type has, and report the others.
	n.eachChild(func(k *key, item *node) bool {
		f, ok := info.byName[k.name]
		switch {
		case ok:
			seenFields |= 1 << f
			b.member(item, v, &info.fields[f])
		case info.section >= 0 && b.section(k, item, info, v), b.partial:
		case b.findings.isFull():
			return false
		default:
			if !allSeen {
				seenFields, allSeen = info.present(n), true
			}
			b.refuseUnknown(k, info, seenFields)
		}
		return !b.findings.hasMore
	})
	if b.findings.hasMore {
		return
	}

	// Report the required fields that are absent.
	for f := range info.fields {
		if f != info.section && seenFields&(1<<f) == 0 && !info.fields[f].optional && !b.findings.isFull() {
			b.field(info.fields[f].name)
			b.findings.add(b.src.fail(n.pos, string(b.path), "nothing", describeType(info.fields[f].typ), ""))
			b.path = b.path[:mark]
		}
	}
}

// member sets field f of the struct `object` from the value n. A field with a default may not be given an explicit
// zero.
func (b *binder) member(n *node, object reflect.Value, f *fieldInfo) {
	mark := len(b.path)
	b.field(f.name)
	v := object.FieldByIndex(f.index)
	b.nullable = !f.optional
	b.bind(n, v)
	if f.def != "" && n.kind == numberNode && v.IsZero() {
		b.refuseZero(n, f.def)
	}
	b.path = b.path[:mark]
}

// present returns the fields of the struct that an object has, one bit for each.
func (info *structInfo) present(n *node) (fields uint64) {
	n.eachChild(func(k *key, _ *node) bool {
		if f, ok := info.byName[k.name]; ok {
			fields |= 1 << f
		}
		return true
	})
	return fields
}

// refuseZero adds a finding for an explicit zero, unless the number failed to bind already.
func (b *binder) refuseZero(n *node, def string) {
	if f, err := strconv.ParseFloat(n.text, 64); err == nil && f == 0 {
		b.fail(n, "a positive number", "leave the field out for the default: "+def)
	}
}

// field adds a field's name to the current path, with a dot before it if it is not the first.
func (b *binder) field(name string) {
	if len(b.path) > 0 {
		b.path = append(b.path, '.')
	}
	b.path = append(b.path, name...)
}

func (b *binder) index(i int) {
	b.path = append(b.path, '[')
	b.path = strconv.AppendInt(b.path, int64(i), 10)
	b.path = append(b.path, ']')
}

// knownNames returns the names of the fields, and of the fields that a section may have.
func (info *structInfo) knownNames() []string {
	if info.section < 0 {
		return info.names
	}
	return append(slices.Clone(info.names), info.sectionNames()...)
}

// refuseUnknown records an error for a field that the struct does not have, with a hint at a similar one.
// seenFields has a bit for each field that the object has: these are not suggested.
func (b *binder) refuseUnknown(k *key, info *structInfo, seenFields uint64) {
	mark := len(b.path)
	b.field(shortened(k.name))
	e := b.src.fail(k.pos, string(b.path), "an unknown field", "", "")
	b.path = b.path[:mark]
	var absent []string // suggest only fields that are not there
	for f := range info.fields {
		switch name := info.fields[f].name; {
		case f == info.section:
			absent = append(absent, info.sectionNames()...)
		case name != "" && seenFields&(1<<f) == 0:
			absent = append(absent, name)
		}
	}
	e.Hint = cmp.Or(DidYouMean(k.name, absent), "known here: "+strings.Join(info.knownNames(), ", "))
	b.findings.add(e)
}
