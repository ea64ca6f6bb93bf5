package document

import (
	"fmt"
	"strings"
)

// Schema returns the JSON Schema of documents that have one of several sections. It combines the document's
// schema, text, with those of the sections and of the options of each. name is the name of such a document.
func Schema(text, name string, list []Section) ([]byte, error) {
	root, err := parseSchema(text)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of a %s: %w", name, err)
	}
	oneOf, options := listNodeOf(), false
	for _, e := range list {
		options = options || e.Options != nil
	}

	// Add the schema of each section, and the definitions that it uses.
	for _, e := range list {
		part, err := parseSchema(e.Schema)
		if err != nil {
			return nil, fmt.Errorf("reading the schema of the section %s of a %s: %w", e.Name, name, err)
		}
		root.field("properties").put(e.Name, *part.field("section"))
		if defs := part.field("$defs"); defs != nil {
			for i := range defs.len() {
				root.field("$defs").put(defs.children.keys[i].name, defs.children.items[i])
			}
		}
		oneOf.add(sectionChoice(e.Name, options))
	}
	root.put("oneOf", oneOf)
	if options {
		putOptions(&root, list, name)
	}
	return append(appendPretty(nil, &root, 0, 0), '\n'), nil
}

// parseSchema parses the JSON text of a schema. It returns an error without a file's name, because the schema is
// built in.
func parseSchema(text string) (node, error) {
	root, e := scanJSON(&source{text: text})
	if e != nil {
		return root, e
	}
	return root.parsed(), nil
}

// sectionChoice returns the schema that holds for a document with one of its sections: the section is there and, if
// sections have options, kind and options are the section's. options says whether sections have options.
func sectionChoice(section string, options bool) node {
	out := objectOf("required", listNodeOf(textNode(section)))
	if options {
		out.put("properties", objectOf(
			"kind", objectOf("const", textNode(section)),
			"options", objectOf("$ref", textNode("#/$defs/"+optionsDefinition(section)))))
	}
	return out
}

// optionsDefinition returns the name of the definition of a kind's options.
func optionsDefinition(kind string) string { return strings.ToUpper(kind[:1]) + kind[1:] + "Options" }

// putOptions adds to a schema the kinds that a document may have, one for each section, and the options of each.
func putOptions(root *node, list []Section, name string) {
	kinds := listNodeOf()
	for i := range list {
		k := &list[i]
		kinds.add(textNode(k.Name))
		properties, required := objectOf(), listNodeOf()
		for j := range k.Options {
			o := &k.Options[j]
			if o.Key == "" {
				continue
			}
			properties.put(o.Key, o.schema())
		}
		root.field("$defs").put(optionsDefinition(k.Name), objectOf(
			"description", textNode("The choices under which a "+name+" of kind "+k.Name+" was made. What is left out is off."),
			"type", textNode("object"), "required", required,
			"additionalProperties", node{kind: boolNode, text: "false"}, "properties", properties))
	}
	root.field("properties").put("kind", objectOf("enum", kinds, "description", textNode("Kind of the "+name+", which names its section.")))
	root.field("properties").put("options", objectOf("type", textNode("object"), "description", textNode("Choices under which the "+name+" was made, by the options of its kind. With the inputs they make it again.")))
}

// schema returns the JSON Schema of the values that an option accepts in a document.
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
			out.put(map[bool]string{false: "maximum", true: "exclusiveMaximum"}[o.MaxExcluded], numberNodeOf(o.Max))
		}
	case ChoiceOption:
		out.put("enum", words)
	default:
		out.put("type", textNode("string"))
	}
	out.put("description", textNode(o.Help))
	return out
}

func textNode(s string) node      { return node{kind: stringNode, text: s} }
func numberNodeOf(x float64) node { return node{kind: numberNode, text: FormatFloat(x)} }
func listNodeOf(items ...node) node {
	return node{kind: listNode, children: &nodeChildren{items: items}}
}
func (n *node) add(item node) { n.children.items = append(n.children.items, item) }

// put sets the field of an object to item, at its place if it has the field, or else at the end.
func (n *node) put(name string, item node) {
	if n.children == nil {
		n.children = &nodeChildren{}
	}
	for i := range n.children.keys {
		if n.children.keys[i].name == name {
			n.children.items[i] = item
			return
		}
	}
	n.children.keys, n.children.items = append(n.children.keys, key{name: name}), append(n.children.items, item)
}

// objectOf returns a JSON object. pairs has names and values in turn.
func objectOf(pairs ...any) node {
	n := node{kind: objectNode, children: &nodeChildren{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		n.put(pairs[i].(string), pairs[i+1].(node))
	}
	return n
}
