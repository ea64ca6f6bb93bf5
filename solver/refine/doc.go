// Package refine tells which nodes of a structure are alike, by colour refinement: the
// coarsest partition in which alike nodes are in alike tuples, at the same places, equally
// often (Grohe, Kersting, Mladenov and Selman, Dimension Reduction via Colour Refinement,
// ESA 2014).
//
// A linear program over the classes then has the optimum of the one over single nodes: the
// mean of a solution over what is alike is a solution.
package refine
