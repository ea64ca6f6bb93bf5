package document

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Values are the options of a kind with what was chosen for them. An option
// that was not chosen has its default. Copies are independent: Set changes only
// the one it is called on.
type Values struct {
	options []Option
	chosen  map[string]any
}

// NewValues returns options that all have their defaults.
func NewValues(options []Option) Values { return Values{options: options} }

// Options are the options that there are.
func (v Values) Options() []Option { return v.options }

// Has tells whether there is an option of that name.
func (v Values) Has(name string) bool { return findOption(v.options, name) != nil }

// Chosen tells whether the option was set.
func (v Values) Chosen(name string) bool { _, ok := v.chosen[name]; return ok }

// Set chooses a value. An option that there is not, and a value that it does not
// take, is an *Error that names the flag.
func (v *Values) Set(name string, value any) error {
	o := findOption(v.options, name)
	if o == nil {
		return &Error{Path: "--" + name, Found: "an option that there is not", Expected: "one of " + strings.Join(v.names(), ", ")}
	}
	value, err := o.Accept(value)
	if err != nil {
		return err
	}
	v.Put(name, value)
	return nil
}

// Put chooses a value that the option takes.
func (v *Values) Put(name string, value any) {
	v.chosen = maps.Clone(v.chosen)
	if v.chosen == nil {
		v.chosen = map[string]any{}
	}
	v.chosen[name] = value
}

func (v Values) names() []string {
	var out []string
	for i := range v.options {
		out = append(out, v.options[i].Name)
	}
	return out
}

// Get is the value of an option; nil where there is none of that name.
func (v Values) Get(name string) any {
	if value, ok := v.chosen[name]; ok {
		return value
	}
	if o := findOption(v.options, name); o != nil {
		return o.Initial()
	}
	return nil
}

func get[T any](v Values, name string) T {
	x, _ := v.Get(name).(T)
	return x
}

// Flag is the value of a flag; false where there is no such option.
func (v Values) Flag(name string) bool { return get[bool](v, name) }

// Whole is the value of a whole number; 0 where there is no such option.
func (v Values) Whole(name string) int { return get[int](v, name) }

// Number is the value of a number; 0 where it is a word, or no such option.
func (v Values) Number(name string) float64 { return get[float64](v, name) }

// Word is the value of a choice or text, and of a number that is given as a
// word; empty where there is none.
func (v Values) Word(name string) string { return get[string](v, name) }

// Time is the value of a duration; 0 where there is no such option.
func (v Values) Time(name string) time.Duration { return get[time.Duration](v, name) }

// SLO is the value of a latency target; zero where it is not set.
func (v Values) SLO(name string) SLO { return get[SLO](v, name) }

// Equal tells whether two sets of options have the same values.
func (v Values) Equal(w Values) bool {
	if !slices.Equal(v.names(), w.names()) {
		return false
	}
	return !slices.ContainsFunc(v.names(), func(n string) bool { return v.Get(n) != w.Get(n) })
}

var valuesType = reflect.TypeFor[Values]()

// kept tells whether a plan holds the option: it has a key, it is not
// off by default and off, it is not a word for a number or a text that is still to be found, and
// what it needs is set.
func (v Values) kept(o *Option) bool {
	if word, is := v.Get(o.Name).(string); is && (o.Type == NumberOption || o.Type == TextOption && slices.Contains(o.Choices, word)) {
		return false
	}
	if o.Key == "" || v.Get(o.Name) == o.zero() && o.Initial() == o.zero() {
		return false
	}
	return len(o.Needs) == 0 || slices.ContainsFunc(o.Needs, func(n string) bool { return v.Get(n) != findOption(v.options, n).zero() })
}

// Kept are the values that a plan keeps: each chosen, so that another default
// does not change their meaning.
func (v Values) Kept() Values {
	out := NewValues(v.options)
	for i := range v.options {
		if o := &v.options[i]; v.kept(o) {
			out.Put(o.Name, v.Get(o.Name))
		}
	}
	return out
}

// node writes what a plan keeps, in the order of the table.
func (v Values) node() node {
	k := &kids{}
	for i := range v.options {
		o := &v.options[i]
		if !v.kept(o) {
			continue
		}
		n := node{kind: stringNode, text: o.Text(v.Get(o.Name))}
		switch x := v.Get(o.Name).(type) {
		case bool:
			n.kind = boolNode
		case int:
			n.kind = numberNode
		case float64:
			n.kind, n.text = numberNode, FormatFloat(x)
		}
		k.keys, k.items = append(k.keys, key{name: o.Key}), append(k.items, n)
	}
	return node{kind: objectNode, kids: k}
}

// values binds the options of a plan against the table of its kind.
func (b *binder) values(n *node, v reflect.Value) {
	if n.kind != objectNode {
		b.fail(n, "an object", "")
		return
	}
	if b.options == nil {
		return // of an unknown kind
	}
	out := NewValues(b.options)
	info := &structInfo{byName: map[string]int{}, section: -1}
	for i := range b.options {
		o := &b.options[i] // one without a key has no name in a document
		if o.Key != "" {
			info.byName[o.Key] = i
			info.names = append(info.names, o.Key)
		}
		info.fields = append(info.fields, fieldInfo{name: o.Key})
	}
	mark := len(b.path)
	n.each(func(k *key, item *node) bool {
		at, ok := info.byName[k.name]
		if !ok {
			b.unknown(k, info, 0)
			return !b.findings.cut
		}
		b.field(k.name)
		if value, ok := b.value(&b.options[at], item); ok {
			out.Put(b.options[at].Name, value)
		}
		b.path = b.path[:mark]
		return !b.findings.cut
	})
	v.Set(reflect.ValueOf(out.Kept()))
}

// value binds one option.
func (b *binder) value(o *Option, n *node) (any, bool) {
	at := reflect.New(reflect.TypeOf(o.zero())).Elem()
	switch {
	case o.Type == DurationOption:
		d := reflect.New(durationType).Elem()
		before := len(b.findings.list)
		b.bind(n, d)
		return time.Duration(d.Int()), len(b.findings.list) == before
	}
	before := len(b.findings.list)
	b.bind(n, at)
	if len(b.findings.list) > before {
		return nil, false
	}
	if _, hint := o.Wrong(at.Interface()); !o.accepts(at.Interface()) {
		b.fail(n, o.Kept().Expected(), hint)
		return nil, false
	}
	return at.Interface(), true
}

// Kept is the option as plans hold it: a number is a number there, also where a
// word may be typed for it.
func (o *Option) Kept() *Option {
	if o.Type != NumberOption {
		return o
	}
	k := *o
	k.Choices = nil
	return &k
}

func (o *Option) accepts(value any) bool {
	found, _ := o.Wrong(value)
	return found == ""
}

// Check checks the values of a plan as Accept does, with their paths.
func (v Values) Check(c *Checker) {
	for i := range v.options {
		o := &v.options[i]
		value, set := v.chosen[o.Name]
		if !set || o.Key == "" {
			continue
		}
		if found, hint := o.Kept().Wrong(value); found != "" {
			c.Fail("options."+o.Key, found, o.Kept().Expected(), hint)
		}
	}
}
