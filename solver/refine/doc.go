// Package refine finds the nodes of a structure that are interchangeable, by colour refinement: the
// coarsest partition in which nodes of a class occur in tuples of the same classes, at the same
// positions, equally often (Grohe, Kersting, Mladenov and Selman, Dimension Reduction via Colour
// Refinement, ESA 2014).
//
// A linear program with one variable per class has the same optimum as one with a variable per
// node, because the mean of a solution over the nodes of a class is a solution, too.
//
// Colour: the class of a node before refinement. Tuple: an ordered set of nodes, with a label.
package refine
