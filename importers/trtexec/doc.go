// Package trtexec imports what TensorRT's trtexec exports (formats/importer/trtexec) into a profile.
package trtexec
