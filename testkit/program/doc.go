// Package program runs workflows as code against a server, over the HTTP form of package
// formats/calls: Run opens a request, runs a function over its session and ends the
// request, whatever becomes of it.
package program
