// Command bench-attack attacks `plan` from outside.
package main
