package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"inferplan/formats/document"
)

// source is a file of manifests, with the first thing that is wrong with a value of it.
type source struct {
	file string
	err  error
}

// value is a value of a manifest, with its place. One that is absent or null has no node.
type value struct {
	*source
	path string
	node *yaml.Node
}

// parseYAML returns the documents of a text, which may be JSON. Empty documents are left out.
func parseYAML(src *source, text string) (list []value, err error) {
	defer func() {
		if r := recover(); r != nil { // the library gets arbitrary bytes, so a panic of it means bad input
			err = &document.Error{File: src.file, Found: fmt.Sprintf("text that the YAML parser cannot take (%v)", r), Expected: "manifests of Kubernetes"}
		}
	}()
	if !utf8.ValidString(text) {
		return nil, &document.Error{File: src.file, Found: "bytes that are not UTF-8", Expected: "manifests of Kubernetes"}
	}
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc yaml.Node
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, &document.Error{File: src.file, Found: "a YAML syntax error: " + strings.TrimPrefix(err.Error(), "yaml: "), Expected: "manifests of Kubernetes",
				Hint: "of templates give what helm template or kubectl kustomize makes of them"}
		}
		if v := (value{src, "", doc.Content[0]}).orAbsent(); v.exists() {
			list = append(list, v)
		}
	}
}

// fail records that a value is not what is expected, unless something was recorded before. It returns the error.
func (v value) fail(found, expected, hint string) error {
	e := &document.Error{File: v.file, Path: v.path, Found: found, Expected: expected, Hint: hint}
	if v.node != nil {
		e.Line, e.Column = v.node.Line, v.node.Column
	}
	if v.err == nil {
		v.err = e
	}
	return e
}

// exists reports whether there is a value that is not null.
func (v value) exists() bool { return v.node != nil }

// orAbsent returns the value, or an absent one for null and, with an error, for aliases.
func (v value) orAbsent() value {
	switch {
	case v.node.Kind == yaml.AliasNode:
		v.fail("an alias", "the value itself", "give what kubectl or helm template prints")
		v.node = nil
	case v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == "!!null":
		v.node = nil
	}
	return v
}

// describe returns a value for messages.
func (v value) describe() string {
	switch v.node.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "an object"
	}
	return document.Quote(v.node.Value)
}

// field returns a field of an object, or of an object in it: a path of names with dots between them.
func (v value) field(path string) value {
	for name := range strings.SplitSeq(path, ".") {
		v = v.member(name)
	}
	return v
}

// member returns a field of an object.
func (v value) member(name string) value {
	member := value{v.source, strings.TrimPrefix(v.path+"."+name, "."), nil}
	if v.node == nil {
		return member
	}
	if v.node.Kind != yaml.MappingNode {
		v.fail(v.describe(), "an object", "")
		return member
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		if v.node.Content[i].Value == name {
			member.node = v.node.Content[i+1]
			return member.orAbsent()
		}
	}
	return member
}

// items returns the values of a list.
func (v value) items() (list []value) {
	if v.node == nil {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		v.fail(v.describe(), "a list", "")
		return nil
	}
	for i, n := range v.node.Content {
		list = append(list, value{v.source, v.path + "[" + strconv.Itoa(i) + "]", n}.orAbsent())
	}
	return list
}

// text returns a text, or "" if there is none.
func (v value) text() string {
	if v.node == nil {
		return ""
	}
	if v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != "!!str" {
		v.fail(v.describe(), "a text", "put it in quotes")
		return ""
	}
	return v.node.Value
}

// texts returns a list of texts.
func (v value) texts() (list []string) {
	return document.Map(v.items(), func(item *value) string { return item.text() })
}

// labels returns an object of texts.
func (v value) labels() map[string]string {
	labels := map[string]string{}
	if v.node == nil {
		return labels
	}
	if v.node.Kind != yaml.MappingNode {
		v.fail(v.describe(), "an object of texts", "")
		return labels
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		label := value{v.source, v.path + "." + v.node.Content[i].Value, v.node.Content[i+1]}.orAbsent()
		labels[v.node.Content[i].Value] = label.text()
	}
	return labels
}

// maxPods bounds replicas and devices: more are a mistake.
const maxPods = 100_000

// count returns a whole number from 0 to maxPods, as a number or in quotes, or absent if there is none.
func (v value) count(absent int) int {
	if v.node == nil {
		return absent
	}
	n, err := strconv.Atoi(v.node.Value)
	if v.node.Kind != yaml.ScalarNode || err != nil || n < 0 || n > maxPods {
		v.fail(v.describe(), fmt.Sprintf("a whole number from 0 to %d", maxPods), "")
		return absent
	}
	return n
}

// cpus returns a quantity of CPUs, such as 2, "2" or 1500m, rounded down to whole ones, or 0 if there is none.
func (v value) cpus() int {
	if v.node != nil && v.node.Kind == yaml.ScalarNode {
		if milli, isMilli := strings.CutSuffix(v.node.Value, "m"); isMilli {
			if n, err := strconv.Atoi(milli); err == nil && n >= 0 {
				return n / 1000
			}
		}
	}
	return v.count(0)
}

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
