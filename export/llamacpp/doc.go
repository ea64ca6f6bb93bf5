// Package llamacpp exports queue plans as servers of llama.cpp, behind llama-swap where an instance runs several
// models.
package llamacpp
