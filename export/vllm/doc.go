// Package vllm exports queue plans as servers of vLLM.
package vllm
