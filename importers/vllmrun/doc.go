// Package vllmrun imports a run of a vLLM server, with its requests, into a profile.
package vllmrun
