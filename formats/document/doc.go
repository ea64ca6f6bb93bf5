// Package document reads and writes documents of any kind: JSON and YAML with positions, structs that are bound to
// them, checks that name a field, and values with units.
//
// Vocabulary:
//
//   - Node: a value of a text, with its position.
//
//   - Binding: filling a Go struct from nodes.
//
//   - Finding: one thing that is wrong with a document.
//
//   - Section: the part of a document that belongs to its kind.
//
//     Read in this order:
//
//     json.go, nonfinite.go, yaml.go  texts into nodes
//     node.go                         a value with its position
//     bind.go, bindvalues.go          nodes into structs, by their json tags
//     section.go                      the field of a document that depends on its kind
//     encode.go, write.go             structs into text, and files written completely or not at all
//     kinds.go                        tables of kinds: reading a file of one of them
//     foreign.go                      JSON of other programs
//     check.go                        Checker: the findings of a document's Validate
//     rule.go                         Rule: what a field may be by itself
//     error.go                        Error: one finding, with a hint at what to do
//     units.go, unit_bytes.go         times, latency targets and sizes
//     option.go, values.go            options of a kind, and their chosen values
//     tabletext.go                    counts and times as people read them
//     schema.go                       JSON Schemas of documents with sections
package document
