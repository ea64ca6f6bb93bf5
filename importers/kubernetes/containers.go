package kubernetes

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// engine is a program that serves models.
type engine struct {
	name   string
	images []string   // last part of the image's name
	starts [][]string // beginnings of the command
}

// The engines whose plans are made.
var (
	serveEngine  = engine{name: "plan serve", starts: [][]string{{"plan", "serve"}}}
	workerEngine = engine{name: "plan worker", starts: [][]string{{"plan", "worker"}}}
	tritonEngine = engine{name: "Triton", images: []string{"tritonserver"}, starts: [][]string{{"tritonserver"}}}
)

// engines lists the programs that are known: by the names of images and commands in their own documentation.
var engines = []*engine{
	&serveEngine, &workerEngine, &tritonEngine,
	{name: "vLLM", images: []string{"vllm-openai", "vllm"}, starts: [][]string{{"vllm", "serve"}, {"-m", "vllm.entrypoints.openai.api_server"}}},
	{name: "SGLang", images: []string{"sglang"}, starts: [][]string{{"-m", "sglang.launch_server"}}},
	{name: "llama.cpp", images: []string{"llama.cpp", "llama-swap"}, starts: [][]string{{"llama-server"}, {"llama-swap"}}},
	{name: "Text Generation Inference", images: []string{"text-generation-inference"}, starts: [][]string{{"text-generation-launcher"}}},
	{name: "TensorRT-LLM", starts: [][]string{{"trtllm-serve"}}},
	{name: "Ollama", images: []string{"ollama"}, starts: [][]string{{"ollama", "serve"}}},
}

// engineOf returns the engine of a container, or nil if it is another program. The command says more than the image,
// which may hold several.
func engineOf(image string, words []string) *engine {
	for _, e := range engines {
		if slices.ContainsFunc(e.starts, func(start []string) bool { return indexOf(words, start) >= 0 }) {
			return e
		}
	}
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	i := slices.IndexFunc(engines, func(e *engine) bool { return slices.Contains(e.images, name) })
	if i < 0 {
		return nil
	}
	return engines[i]
}

// indexOf returns where a command begins among words, or -1. Programs may have a folder before their names.
func indexOf(words, command []string) int {
	for i := range len(words) - len(command) + 1 {
		if path.Base(words[i]) == command[0] && slices.Equal(words[i+1:i+len(command)], command[1:]) {
			return i
		}
	}
	return -1
}

// shellWord matches a word of a shell, without what stands between commands.
var shellWord = regexp.MustCompile(`(?:[^\s'"\\;&|]|'[^']*'|"[^"]*"|\\[\s\S])+`)

// quoted matches what a word of a shell has in quotes, or behind a backslash.
var quoted = regexp.MustCompile(`'([^']*)'|"([^"]*)"|\\([\s\S])`)

// wordsOf returns the words of a container's command and arguments. Commands of a shell are divided into their words.
func wordsOf(container value) (words []string) {
	texts := slices.Concat(container.field("command").texts(), container.field("args").texts())
	for i, text := range texts {
		isScript := i > 0 && strings.HasPrefix(texts[i-1], "-") && strings.HasSuffix(texts[i-1], "c") && strings.HasSuffix(path.Base(texts[0]), "sh")
		if !isScript {
			words = append(words, text)
			continue
		}
		for _, word := range shellWord.FindAllString(text, -1) {
			words = append(words, quoted.ReplaceAllString(word, "$1$2$3"))
		}
	}
	return words
}

// optionsOf returns the values of an option among words: --name=VALUE or --name VALUE.
func optionsOf(words []string, name string) (values []string) {
	for i, word := range words {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			values = append(values, v)
		} else if word == name && i+1 < len(words) {
			values = append(values, words[i+1])
		}
	}
	return values
}
