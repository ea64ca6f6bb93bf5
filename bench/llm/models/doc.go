// Command models writes the models that tests of real servers of language models
// run: two of one size and one four times as large, all with random weights.
//
//	go run ./bench/llm/models -o third_party/llama/models
package main
