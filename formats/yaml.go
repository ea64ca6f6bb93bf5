package formats

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxYAML bounds YAML files: people write them, and the parser is not made for
// bulk. Machines write JSON.
const maxYAML = 1 << 20

// parseYAML reads one YAML document into nodes. Only the part of YAML that
// means the same to everybody is accepted: no anchors, aliases, merge keys or
// tags, plain decimal numbers, one document.
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
			// The parser is a library fed with arbitrary bytes: its panic is bad input.
			err = src.fail(start, "", fmt.Sprintf("text that the YAML parser cannot take (%v)", r), "a YAML document", "")
		}
	}()
	tokens := lexer.Tokenize(src.text)
	y := &yamlReader{src: src}
	y.checkTokens(tokens)
	file, perr := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if perr != nil {
		return root, y.syntax(perr)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			y.fail(d.Body.GetToken(), "a second document", "one document per file", "")
		}
		body = d.Body
	}
	if body == nil {
		return root, src.fail(start, "", "an empty file", "a YAML document", "")
	}
	return y.node(body, 0), nil
}

// yamlReader turns the parser's tree into nodes; like jsonParser it leaves by
// panicking with an *Error.
type yamlReader struct {
	src  *source
	path []string // of the value at hand, in parts
}

func tokenPos(t *token.Token) int64 {
	if t == nil || t.Position == nil {
		return 1<<32 | 1
	}
	return int64(max(t.Position.Line, 1))<<32 | int64(max(t.Position.Column, 1))
}

func (y *yamlReader) fail(t *token.Token, found, expected, hint string) {
	panic(y.src.fail(tokenPos(t), "", found, expected, hint))
}

func (y *yamlReader) manyKeys(t *token.Token) {
	y.fail(t, "more than "+strconv.Itoa(maxKeys)+" fields of one object", "fewer", "write large documents as JSON")
}

// maxKeys bounds the fields of one object: the parser's work grows with their
// square. No document of ours has a tenth of it.
const maxKeys = 1000

// mappingAt is a block mapping whose keys stand in a column, with their number.
type mappingAt struct{ column, keys int }

// checkTokens refuses nesting that would exhaust the parser's stack, and
// objects that would exhaust its patience.
func (y *yamlReader) checkTokens(tokens token.Tokens) {
	flow, line, inline, directives := 0, 0, 0, 0
	var inside []int     // keys of the lists and objects in brackets around the token
	var open []mappingAt // block mappings around the token, the innermost last
	for i, t := range tokens {
		if flow == 0 && (t.Type == token.MappingValueType && i > 0 || t.Type == token.SequenceEntryType) {
			column, more := t.Position.Column, 0
			if t.Type == token.MappingValueType {
				column, more = tokens[i-1].Position.Column, 1
			}
			for len(open) > 0 && open[len(open)-1].column > column {
				open = open[:len(open)-1]
			}
			if len(open) == 0 || open[len(open)-1].column < column {
				open = append(open, mappingAt{column: column})
			}
			m := &open[len(open)-1]
			if m.keys += more; m.keys > maxKeys {
				y.manyKeys(t)
			}
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
			inside = append(inside, 0)
		case token.SequenceEndType, token.MappingEndType:
			flow--
			inside = inside[:max(len(inside)-1, 0)]
		case token.MappingValueType:
			if n := len(inside); n > 0 {
				if inside[n-1]++; inside[n-1] > maxKeys {
					y.manyKeys(t)
				}
			}
		case token.DirectiveType:
			if directives++; directives > 2 {
				y.fail(t, "a third directive", "the document itself", "leave out the lines that start with %")
			}
		}
		if t.Position.Line != line {
			line, inline = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.TagType, token.AnchorType:
			inline++
		default:
			if flow > 0 {
				inline = 0
			}
		}
		if flow > maxDepth || inline > maxDepth || t.Position.Column > 10*maxDepth && t.Type == token.SequenceEntryType {
			y.fail(t, "more than "+strconv.Itoa(maxDepth)+" levels of nesting", "a flatter document", "")
		}
	}
}

func (y *yamlReader) syntax(err error) *Error {
	// The text of the library's own error shows the whole document: only what is
	// no such error is asked for its text.
	pos, msg := int64(1)<<32|1, ""
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		pos, msg = tokenPos(ye.GetToken()), ye.GetMessage()
	} else {
		msg = err.Error()
	}
	msg, _, _ = strings.Cut(msg, "\n")
	hint := ""
	if strings.Contains(msg, "\t") {
		msg, hint = strings.ReplaceAll(msg, "\t", `\t`), "indent with spaces"
	}
	return y.src.fail(pos, "", "a YAML syntax error: "+msg, "", hint)
}

func (y *yamlReader) node(a ast.Node, depth int) node {
	if a == nil {
		return node{kind: nullNode, pos: 1<<32 | 1}
	}
	t := a.GetToken()
	if depth > maxDepth {
		y.fail(t, "more than "+strconv.Itoa(maxDepth)+" levels of nesting", "a flatter document", "")
	}
	n := node{pos: tokenPos(t)}
	switch v := a.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.kind, n.text = boolNode, strconv.FormatBool(v.Value)
	case *ast.IntegerNode:
		n.kind, n.text = numberNode, y.number(t)
	case *ast.FloatNode:
		n.kind, n.text = numberNode, y.number(t)
	case *ast.InfinityNode, *ast.NanNode:
		panic(y.src.fail(tokenPos(t), strings.TrimPrefix(strings.Join(y.path, ""), "."), t.Value, "a finite number", nonFiniteHint))
	case *ast.StringNode:
		n.kind, n.text = stringNode, v.Value
		if t.Type == token.StringType && t.Value == v.Value && isNumber(v.Value) {
			n.kind = numberNode // 1e3 and what no machine integer holds: the library takes them for text
		}
		y.text(t, n.text)
	case *ast.LiteralNode:
		n.kind = stringNode
		if v.Value != nil {
			n.text = v.Value.Value
		}
		y.text(t, n.text)
	case *ast.SequenceNode:
		n.kind = listNode
		if len(v.Values) > 0 {
			n.kids = &kids{items: make([]node, len(v.Values))}
			for i, item := range v.Values {
				n.kids.items[i] = y.inside("["+strconv.Itoa(i)+"]", item, depth)
			}
		}
	case *ast.MappingNode:
		y.mapping(&n, v.Values, depth)
	case *ast.MappingValueNode:
		y.mapping(&n, []*ast.MappingValueNode{v}, depth)
	case *ast.AnchorNode, *ast.AliasNode:
		y.fail(t, "an anchor or alias", "the value itself", "documents use plain YAML: repeat the value, and put text that starts with & or * in quotes")
	case *ast.TagNode:
		y.fail(t, "the tag "+quote(t.Value), "a value without a tag", "put text that starts with ! in quotes")
	default:
		y.fail(t, "a "+strings.ToLower(a.Type().String())+" here", "a value", "")
	}
	return n
}

// inside is the node of a part of a list or object.
func (y *yamlReader) inside(part string, a ast.Node, depth int) node {
	y.path = append(y.path, part)
	n := y.node(a, depth+1)
	y.path = y.path[:len(y.path)-1]
	return n
}

// text refuses bytes that the document could not be written with again.
func (y *yamlReader) text(t *token.Token, s string) {
	if !utf8.ValidString(s) {
		y.fail(t, "text that is not UTF-8", "UTF-8", "")
	}
}

// number accepts what JSON would take as a number too.
func (y *yamlReader) number(t *token.Token) string {
	s := strings.TrimSpace(t.Value)
	if !isNumber(s) {
		y.fail(t, "the number "+quote(s), "a plain decimal number", "no leading zeros, underscores or other bases; put text in quotes")
	}
	return s
}

func (y *yamlReader) mapping(n *node, values []*ast.MappingValueNode, depth int) {
	n.kind = objectNode
	if len(values) == 0 {
		return
	}
	n.kids = &kids{keys: make([]key, len(values)), items: make([]node, len(values))}
	for i, mv := range values {
		if mv.Key == nil {
			y.fail(mv.GetToken(), "no field name", "name: value", "")
		}
		t := mv.Key.GetToken()
		k := key{pos: tokenPos(t)}
		switch kn := mv.Key.(type) {
		case *ast.StringNode:
			k.name = kn.Value
		case *ast.IntegerNode:
			k.name = t.Value
		case *ast.MergeKeyNode:
			y.fail(t, "a merge key", "the fields themselves", "documents use plain YAML: repeat the fields")
		default:
			y.fail(t, quote(t.Value)+" as a field name", "a name", "put it in quotes")
		}
		if i == 0 {
			n.pos = k.pos // of block mappings; the parser points at the colon
		}
		y.text(t, k.name)
		n.kids.keys[i], n.kids.items[i] = k, y.inside("."+k.name, mv.Value, depth)
		if n.kids.items[i].kind == nullNode && n.kids.items[i].pos == 1<<32|1 {
			n.kids.items[i].pos = k.pos
		}
	}
	if d := duplicateKey(n.kids.keys); d >= 0 {
		panic(y.src.fail(n.kids.keys[d].pos, "", "the field "+quote(n.kids.keys[d].name)+" a second time", "each field once", ""))
	}
}
