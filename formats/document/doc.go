// Package document reads and writes documents, whatever their kinds: JSON and YAML with the place of everything, structs
// that are bound to them, checks that name a field, and values with units.
//
//	json.go, nonfinite.go, yaml.go  texts into nodes
//	node.go                         Node: a value with its place
//	bind.go, bindvalues.go          nodes into structs, by their json tags
//	section.go                      the field of a document that its kind decides on
//	encode.go, write.go             structs into text, and files written whole or not at all
//	kinds.go                        tables of kinds: reading a file of one of them
//	foreign.go                      JSON of other programs
//	check.go                        Checker: what a document's Validate finds
//	error.go                        Error: one finding, with what to do about it
//	units.go, unit_bytes.go         times, latency targets and sizes
//	option.go, values.go            options of a kind, and what was chosen
//	schema.go                       JSON Schemas of documents with sections
//
// A *node* is a value of a text. A *finding* is one thing that is wrong with a document. A *section* is the part of a
// document that belongs to its kind.
package document
