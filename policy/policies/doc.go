// Package policies has the table of the kinds of plans at run time: how the tables of a kind are compiled, which
// tasks its requests have, and which policies it has. The simulator and the executor both use it.
//
// Words: a variant is a part of a kind whose plans have other policies, such as flow plans with segments. A maker
// returns a policy over the tables of a plan.
package policies
