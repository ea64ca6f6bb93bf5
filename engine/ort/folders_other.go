//go:build !linux

package ort

func ours(string) bool { return false }
