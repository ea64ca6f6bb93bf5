package main

import (
	"flag"
	"fmt"
	"os"

	"inferplan/testkit/llm/gguf"
)

func main() {
	out := flag.String("o", "", "folder to write to (required)")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintf(os.Stderr, "models: %v\n", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	if dir == "" {
		return fmt.Errorf("-o: name a folder")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, m := range []gguf.Model{gguf.Tiny("tiny-a", 1), gguf.Tiny("tiny-b", 2), gguf.Small("small", 3)} {
		path, err := m.WriteFile(dir)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
