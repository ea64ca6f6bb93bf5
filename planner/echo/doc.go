// Package echo is a kind of plan that exists in tests alone, behind the build tag
// testkind. It shows what a new kind writes: its section and options in package
// formats (formats/echo_testkind.go), its method here, its tables and policy
// (policy/echo), what executes it beside devices (sim/echo_testkind.go,
// executor/echo_testkind.go), and one line in each table (the files whose names end
// in _testkind). Tests hold it against solve, check, explain, diff, simulate, serve
// and replay.
package echo
