// Command dyorc measures.
package main
