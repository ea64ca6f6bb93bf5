// Package explain says in a few lines why a plan is what it is: how good it is
// and how far that is proven, which model and which devices hold it back, and
// what a little more of something would buy. What only plans of one kind have to
// say comes from their method.
package explain
