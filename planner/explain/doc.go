// Package explain describes a plan in a few lines: how good it is and how far that is proven,
// which models and devices limit it, and by how much a little more of something would raise
// the bound. What only one kind of plans has comes from the method of the kind.
//
// The words of this package: a limit is a constraint whose relaxation raises the bound; the
// gain is the relative rise.
package explain
