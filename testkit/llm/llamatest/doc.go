// Package llamatest starts llama.cpp's server for tests: a router with the models
// that make llama wrote, one at a time in memory unless told otherwise.
//
//	s := llamatest.Start(t, llamatest.Options{})
//	c, err := llm.New(s.URL)
//
// Where the server is not set up, the test is skipped and says so. Servers compute
// with one thread: with more, llama.cpp's threads wait for each other in busy loops,
// which takes forty times as long on cores that others use. What tests claim should
// be order, counts and equality, never speed.
package llamatest
