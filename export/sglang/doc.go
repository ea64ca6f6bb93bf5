// Package sglang exports queue plans as servers of SGLang.
package sglang
