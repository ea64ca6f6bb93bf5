package formats

import (
	"strings"

	"inferplan/formats/document"
)

// ModelClass names a model, or one SLO class of a model that has several. Each has its own SLO, queue and
// pipelines.
type ModelClass struct{ Model, Class string }

// String returns "model", or "model/class" if the class has a name.
func (k ModelClass) String() string {
	if k.Class == "" {
		return k.Model
	}
	return k.Model + "/" + k.Class
}

// Key names the entry.
func (m *WorkloadModel) Key() ModelClass { return ModelClass{m.Model, m.Class} }

// Key names the entry.
func (d *Deployed) Key() ModelClass { return ModelClass{d.Model, d.Class} }

// Key names the entry.
func (s *Served) Key() ModelClass { return ModelClass{s.Model, s.Class} }

// Key names the entry.
func (m *CertifiedModel) Key() ModelClass { return ModelClass{m.Model, m.Class} }

// Key names the entry.
func (m *ModelReport) Key() ModelClass { return ModelClass{m.Model, m.Class} }

// Classes finds the models of a list, and their classes, by name.
type Classes struct {
	index map[ModelClass]int
	names map[string][]string // classes by model, the default first
}

// NewClasses returns an index of models with their classes (groups of requests with an SLO of their own). The default
// class of a model is the one without a name, else the first in the list. Find then returns indices into the list.
func NewClasses(list []ModelClass) *Classes {
	c := &Classes{index: map[ModelClass]int{}, names: map[string][]string{}}
	for i, k := range list {
		if _, isDuplicate := c.index[k]; isDuplicate {
			continue
		}
		c.index[k] = i
		if k.Class == "" {
			c.names[k.Model] = append([]string{""}, c.names[k.Model]...)
		} else {
			c.names[k.Model] = append(c.names[k.Model], k.Class)
		}
	}
	return c
}

// Find returns the index of a model's class. If class is empty, it is the model's default class. If there is no
// such class, it returns false.
func (c *Classes) Find(model, class string) (int, bool) {
	names := c.names[model]
	if class == "" && len(names) > 0 {
		class = names[0]
	}
	i, ok := c.index[ModelClass{model, class}]
	return i, ok
}

// ClassesOf lists the classes of a model, the default first; a model without classes
// has one without a name.
func (c *Classes) ClassesOf(model string) []string { return c.names[model] }

// HasNamedClasses reports whether a model has a class with a name.
func (c *Classes) HasNamedClasses(model string) bool {
	names := c.names[model]
	return len(names) > 1 || len(names) == 1 && names[0] != ""
}

// ClassNames returns the names of classes with commas between them, for a message.
func ClassNames(classes []string) string {
	out := make([]string, len(classes))
	for i, n := range classes {
		if out[i] = n; n == "" {
			out[i] = "one without a name"
		}
	}
	return strings.Join(out, ", ")
}

// maxClassName bounds the name of a class, which is used in headers and labels.
const maxClassName = 64

// isClassName returns whether a text can be the name of a class, which is used in headers, metric labels and file
// names. An empty name is allowed.
func isClassName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '-' || c == '_' || c == '.'):
		default:
			return false
		}
	}
	return len(name) <= maxClassName
}

// checkClassName checks that the class of an entry at path can be one.
func checkClassName(c *document.Checker, class, path string) {
	c.FailIf(!isClassName(class), path+".class", "the text "+document.Quote(class), "up to %d letters, digits, -, _ and ., beginning with a letter or digit", maxClassName)
}

// checkKey reports to c an entry i of a list whose model has no name, whose class has no valid name, or that stands
// in the list a second time. indexByKey has the entries before it. path is the entry's field path, for errors.
func checkKey(c *document.Checker, indexByKey map[ModelClass]int, i int, k ModelClass, path string) {
	switch {
	case k.Model == "":
		c.Fail(path+".model", "an empty name", "a name", "")
	case !document.Printable(k.Model):
		c.Fail(path+".model", "the name "+document.Quote(k.Model), document.PrintableName, "")
	case !isClassName(k.Class):
		checkClassName(c, k.Class, path)
	case k.Class == "":
		document.CheckUnique(c, indexByKey, i, k, path+".model", document.Quote(k.Model), "each name once")
	default:
		document.CheckUnique(c, indexByKey, i, k, path+".class", document.Quote(k.Class)+" of "+k.Model, "each class of a model once")
	}
}
