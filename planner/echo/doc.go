// Package echo is a kind of plan that exists in tests alone, behind the build tag
// testkind. It shows what a new kind writes: its section and options in package
// formats (formats/echo_testkind.go), its method here, and one line in each table
// (the files whose names end in _testkind). Tests hold it against solve, check, explain and diff.
package echo
