// Command go drives a front end for completions with OpenAI's client for Go. It is a
// module of its own, so that nothing else depends on that client.
package main
