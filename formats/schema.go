package formats

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed schema/*.json
var schemas embed.FS

// schemaFile is the text of a file below schema/, without its ending.
func schemaFile(name string) string {
	data, err := schemas.ReadFile("schema/" + name + ".json")
	if err != nil {
		return "" // a test reads them all
	}
	return string(data)
}

// Schema returns the JSON Schema (draft 2020-12) of a kind of document, complete
// in itself. Where a document has a section, the schemas of all sections and of
// the options of their kinds are in it. A test holds it against the Go types.
func Schema(kind string) ([]byte, error) {
	if kindOf(kind) == nil {
		return nil, &Error{Found: "the kind " + quote(kind), Expected: strings.Join(Kinds(), ", "), Hint: DidYouMean(kind, Kinds())}
	}
	text := schemaFile(kind)
	root, err := parseSchema(text)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", kind, err)
	}
	list := sections(kind)
	if len(list) == 0 {
		return []byte(text), nil
	}
	oneOf := listNodeOf()
	for _, e := range list {
		part, err := parseSchema(e.schema)
		if err != nil {
			return nil, fmt.Errorf("reading the schema of the section %s of a %s: %w", e.name, kind, err)
		}
		root.field("properties").put(e.name, *part.field("section"))
		if defs := part.field("$defs"); defs != nil {
			for i := range defs.len() {
				root.field("$defs").put(defs.kids.keys[i].name, defs.kids.items[i])
			}
		}
		oneOf.add(sectionChoice(kind, e.name))
	}
	root.put("oneOf", oneOf)
	if kind == KindPlan {
		planSchema(&root)
	}
	return append(appendPretty(nil, &root, 0, 0), '\n'), nil
}

func parseSchema(text string) (node, error) {
	root, e := parseJSON(&source{text: text})
	if e != nil {
		return root, e
	}
	return root, nil
}

// sectionChoice is the schema of a document with one of its sections.
func sectionChoice(kind, section string) node {
	out := objectOf("required", listNodeOf(textNode(section)))
	if kind == KindPlan {
		out.put("properties", objectOf(
			"kind", objectOf("const", textNode(section)),
			"options", objectOf("$ref", textNode("#/$defs/"+optionsDefinition(section)))))
	}
	return out
}

// optionsDefinition names the definition of a kind's options.
func optionsDefinition(kind string) string { return strings.ToUpper(kind[:1]) + kind[1:] + "Options" }

// planSchema fills in what the table of plan kinds says.
func planSchema(root *node) {
	kinds := listNodeOf()
	for i := range planKinds {
		k := &planKinds[i]
		kinds.add(textNode(k.name))
		properties, required := objectOf(), listNodeOf()
		for j := range k.options {
			o := &k.options[j]
			if o.Key == "" {
				continue
			}
			properties.put(o.Key, o.schema())
		}
		root.field("$defs").put(optionsDefinition(k.name), objectOf(
			"description", textNode("The choices under which a plan of kind "+k.name+" was made. What is left out is off."),
			"type", textNode("object"), "required", required,
			"additionalProperties", node{kind: boolNode, text: "false"}, "properties", properties))
	}
	root.field("properties").put("kind", objectOf("enum", kinds))
	root.field("properties").put("options", objectOf("type", textNode("object")))
}

// schema describes the values that an option takes.
func (o *Option) schema() node {
	words := listNodeOf()
	for _, w := range o.Choices {
		words.add(textNode(w))
	}
	out := objectOf()
	switch o.Type {
	case FlagOption:
		out.put("type", textNode("boolean"))
	case WholeOption, NumberOption:
		out.put("type", textNode(map[OptionType]string{WholeOption: "integer", NumberOption: "number"}[o.Type]))
		out.put("minimum", numberNodeOf(o.Min))
		if o.Max > 0 {
			out.put(map[bool]string{false: "maximum", true: "exclusiveMaximum"}[o.Below], numberNodeOf(o.Max))
		}
	case ChoiceOption:
		out.put("enum", words)
	default:
		out.put("type", textNode("string"))
	}
	out.put("description", textNode(o.Help))
	return out
}

func textNode(s string) node        { return node{kind: stringNode, text: s} }
func numberNodeOf(x float64) node   { return node{kind: numberNode, text: formatFloat(x)} }
func listNodeOf(items ...node) node { return node{kind: listNode, kids: &kids{items: items}} }
func (n *node) add(item node)       { n.kids.items = append(n.kids.items, item) }
func (n *node) put(name string, item node) {
	if n.kids == nil {
		n.kids = &kids{}
	}
	for i := range n.kids.keys {
		if n.kids.keys[i].name == name {
			n.kids.items[i] = item
			return
		}
	}
	n.kids.keys, n.kids.items = append(n.kids.keys, key{name: name}), append(n.kids.items, item)
}

// objectOf makes an object of names and their values.
func objectOf(pairs ...any) node {
	n := node{kind: objectNode, kids: &kids{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		n.put(pairs[i].(string), pairs[i+1].(node))
	}
	return n
}
