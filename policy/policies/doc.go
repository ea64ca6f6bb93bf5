// Package policies has the table of the kinds of plans at run time: how a
// kind's tables are compiled, which tasks its requests have, and which policies
// there are for it. Simulator and executor both get theirs here.
package policies
