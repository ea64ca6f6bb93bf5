package document

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxYAML bounds YAML files, in bytes. People write them, while machines write JSON.
const maxYAML = 1 << 20

// parseYAML reads one YAML document into nodes. It accepts only the part of YAML that is unambiguous: plain decimal
// numbers and one document, and neither anchors, aliases, merge keys nor tags. An error has line and column. A
// position (start) has the line in its upper 32 bits and the column in the lower. The reader's methods panic with an
// *Error, which is returned.
func parseYAML(src *source) (root node, err *Error) {
	start := int64(1)<<32 | 1
	if len(src.text) > maxYAML {
		return root, src.fail(start, "", Bytes(len(src.text)).String()+" of YAML", "at most "+Bytes(maxYAML).String(), "write large documents as JSON")
	}
	if !utf8.ValidString(src.text) {
		return root, src.fail(start, "", "bytes that are not UTF-8", "a UTF-8 text", encodingHint(src.text))
	}
	if i := strings.IndexByte(src.text, 0); i >= 0 {
		return root, src.fail(start, "", "a zero byte", "a UTF-8 text", encodingHint(src.text))
	}
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(*Error); ok {
				err = e
				return
			}
			// The library gets arbitrary bytes, so a panic of it means bad input.
			err = src.fail(start, "", fmt.Sprintf("text that the YAML parser cannot take (%v)", r), "a YAML document", "")
		}
	}()
	y := &yamlReader{src: src}
	var body *yaml.Node
	for d := yaml.NewDecoder(strings.NewReader(src.text)); ; {
		var doc yaml.Node
		switch perr := d.Decode(&doc); {
		case errors.Is(perr, io.EOF):
			if body == nil {
				return root, src.fail(start, "", "an empty file", "a YAML document", "")
			}
			return y.node(body, 0), nil
		case perr != nil:
			return root, y.syntax(perr)
		}
		if n := doc.Content[0]; n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 && n.Tag == "!!null" {
			continue // an empty document
		}
		if body != nil {
			y.fail(doc.Content[0], "a second document", "one document per file", "")
		}
		body = doc.Content[0]
	}
}

// yamlReader turns the parser's tree into nodes. Like jsonParser, it panics with an *Error.
type yamlReader struct {
	src  *source
	path []string // path of the current value, in parts
}

func yamlPos(n *yaml.Node) int64 { return int64(max(n.Line, 1))<<32 | int64(max(n.Column, 1)) }

func (y *yamlReader) fail(n *yaml.Node, found, expected, hint string) {
	panic(y.src.fail(yamlPos(n), "", found, expected, hint))
}

// yamlLine finds the line in an error of the library. yamlParser recognises errors of its parser, which counts
// lines from 0, while the scanner counts from 1.
var (
	yamlLine   = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?`)
	yamlParser = regexp.MustCompile(`^did not find expected (?:<document start>|node content|'-' indicator|key|',' or '[\]}]')$`)
)

// syntax turns an error of the YAML library into one of ours, with the line that its message names. Its parser's
// messages count lines from 0. A position has the line in the upper 32 bits and the column in the lower.
func (y *yamlReader) syntax(err error) *Error {
	pos := int64(1)<<32 | 1
	msg, _, _ := strings.Cut(err.Error(), "\n")
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		msg = msg[len(m[0]):]
		if line, err := strconv.Atoi(m[1]); err == nil {
			if yamlParser.MatchString(msg) {
				line++
			}
			pos = int64(max(line, 1))<<32 | 1
		}
	}
	hint := ""
	if strings.Contains(msg, "character that cannot start any token") {
		hint = "put text with this character in quotes, and indent with spaces"
	}
	return y.src.fail(pos, "", "a YAML syntax error: "+msg, "", hint)
}

// node converts a YAML value, depth levels inside others, into a node. It panics with an *Error at what documents
// may not use: anchors, aliases and tags.
func (y *yamlReader) node(a *yaml.Node, depth int) node {
	if depth > maxDepth {
		y.fail(a, "more than "+strconv.Itoa(maxDepth)+" levels of nesting", "a flatter document", "")
	}
	if a.Anchor != "" || a.Kind == yaml.AliasNode {
		y.fail(a, "an anchor or alias", "the value itself", "documents use plain YAML: repeat the value, and put text that starts with & or * in quotes")
	}
	if a.Style&yaml.TaggedStyle != 0 {
		y.fail(a, "the tag "+Quote(a.Tag), "a value without a tag", "put text that starts with ! in quotes")
	}

	// Convert the value by its kind.
	n := node{pos: yamlPos(a)}
	switch a.Kind {
	case yaml.ScalarNode:
		y.scalar(&n, a)
	case yaml.SequenceNode:
		n.kind = listNode
		if len(a.Content) > 0 {
			n.children = &nodeChildren{items: make([]node, len(a.Content))}
			for i, item := range a.Content {
				n.children.items[i] = y.partNode("["+strconv.Itoa(i)+"]", item, depth)
			}
		}
	case yaml.MappingNode:
		y.mapping(&n, a.Content, depth)
	}
	return n
}

// scalar sets n's kind and text from a YAML value that is neither list nor mapping. Quoted values are texts.
// Numbers are those of JSON: other forms that YAML knows, such as 0x1f or 1_000, are errors and not taken as text.
func (y *yamlReader) scalar(n *node, a *yaml.Node) {
	n.kind, n.text = stringNode, a.Value
	switch {
	case a.Style != 0:
	case a.Tag == "!!null":
		n.kind, n.text = nullNode, ""
	case a.Tag == "!!bool":
		n.kind, n.text = boolNode, strconv.FormatBool(strings.EqualFold(a.Value, "true"))
	case isNumber(a.Value):
		n.kind = numberNode
	case a.Tag == "!!float" && strings.Contains(strings.ToLower(a.Value), "n"): // .inf and .nan
		panic(y.src.fail(n.pos, strings.TrimPrefix(strings.Join(y.path, ""), "."), a.Value, "a finite number", nonFiniteHint))
	case a.Tag == "!!int" || a.Tag == "!!float":
		y.fail(a, "the number "+Quote(a.Value), "a plain decimal number", "no leading zeros, underscores or other bases; put text in quotes")
	}
}

// partNode returns the node of a part of a list or object. part is its step in the path, for errors.
func (y *yamlReader) partNode(part string, a *yaml.Node, depth int) node {
	y.path = append(y.path, part)
	n := y.node(a, depth+1)
	y.path = y.path[:len(y.path)-1]
	return n
}

// mapping sets n to an object with the given keys and values, which alternate in content.
func (y *yamlReader) mapping(n *node, content []*yaml.Node, depth int) {
	n.kind = objectNode
	if len(content) == 0 {
		return
	}
	n.children = &nodeChildren{keys: make([]key, len(content)/2), items: make([]node, len(content)/2)}
	for i := range n.children.keys {
		name, value := content[2*i], content[2*i+1]
		switch {
		case name.Tag == "!!merge":
			y.fail(name, "a merge key", "the fields themselves", "documents use plain YAML: repeat the fields")
		case name.Kind != yaml.ScalarNode || name.Anchor != "" || name.Style&yaml.TaggedStyle != 0 || name.Style == 0 && name.Tag != "!!str" && name.Tag != "!!int":
			y.fail(name, Quote(name.Value)+" as a field name", "a name", "put it in quotes")
		}
		k := key{name: name.Value, pos: yamlPos(name)}
		n.children.keys[i], n.children.items[i] = k, y.partNode("."+k.name, value, depth)
	}
	if d := duplicateKey(n.children.keys); d >= 0 {
		panic(y.src.fail(n.children.keys[d].pos, "", "the field "+Quote(n.children.keys[d].name)+" a second time", "each field once", ""))
	}
}
