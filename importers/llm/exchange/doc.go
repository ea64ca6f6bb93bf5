// Package exchange has the flags about what GPUs of an instance exchange in every layer of a language model.
package exchange
