// Package echo gives plans of the kind echo, which exists in tests alone (build
// tag testkind), what they need at run time: tables, and the policy of package
// policytest that uses all of the contract. compile.go makes the tables: the five
// services of a plan are those of the diamond, in its order. A request is split,
// goes left and right at once, is merged and written up on an instance.
package echo
