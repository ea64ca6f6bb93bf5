package kubernetes

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"inferplan/formats/document"
	"inferplan/formats/llmcommand"
)

// engine is a program that serves models.
type engine struct {
	name    string
	images  []string            // last part of the image's name
	starts  [][]string          // beginnings of the command
	program *llmcommand.Program // of a server of language models whose options are read
}

// The engines whose plans are made.
var (
	serveEngine  = engine{name: "plan serve", starts: [][]string{{"plan", "serve"}}}
	workerEngine = engine{name: "plan worker", starts: [][]string{{"plan", "worker"}}}
	tritonEngine = engine{name: "Triton", images: []string{"tritonserver"}, starts: [][]string{{"tritonserver"}}}
)

// engines lists the programs that are known: by the names of images and commands in their own documentation.
var engines = append(languageEngines(),
	&serveEngine, &workerEngine, &tritonEngine,
	&engine{name: "llama-swap", images: []string{"llama-swap"}, starts: [][]string{{"llama-swap"}}},
	&engine{name: "Text Generation Inference", images: []string{"text-generation-inference"}, starts: [][]string{{"text-generation-launcher"}}},
	&engine{name: "TensorRT-LLM", starts: [][]string{{"trtllm-serve"}}},
	&engine{name: "Ollama", images: []string{"ollama"}, starts: [][]string{{"ollama", "serve"}}},
)

// languageEngines returns the servers of language models whose options are read.
func languageEngines() []*engine {
	return document.Map(llmcommand.Programs(), func(p **llmcommand.Program) *engine {
		return &engine{name: (*p).Name, images: (*p).Images, starts: (*p).Starts, program: *p}
	})
}

// engineOf returns the engine of a container by its image and its words, or nil if it is another program. The command says
// more than the image, which may hold several.
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

// reference matches a reference to a variable in a manifest. $$(NAME) is none.
var reference = regexp.MustCompile(`\$?\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// variables returns the environment variables of a container. One whose value is elsewhere has the reference to itself.
func variables(container value) map[string]string {
	variables := map[string]string{}
	for _, v := range container.field("env").items() {
		name := v.field("name").text()
		variables[name] = withValues(v.field("value").text(), variables)
		if v.field("valueFrom").exists() {
			variables[name] = "$(" + name + ")"
		}
	}
	return variables
}

// withValues returns a text with the values of variables: $(NAME) as Kubernetes has it. What has no value stays as it is.
func withValues(text string, variables map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		parts := reference.FindStringSubmatch(found)
		if v, ok := variables[parts[1]]; ok && !strings.HasPrefix(found, "$$") {
			return v
		}
		return found
	})
}

// containerCommand returns the command of a container, with the values of its variables. What its image starts without a
// command is the program that the image's name stands for.
func containerCommand(container value) (command, error) {
	variables := variables(container)
	words := slices.Concat(container.field("command").texts(), container.field("args").texts())
	for i := range words {
		words[i] = withValues(words[i], variables)
	}
	c, err := commandOf(words, variables)
	if c.engine == nil {
		c.engine = engineOf(container.field("image").text(), nil)
	}
	return c, err
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
