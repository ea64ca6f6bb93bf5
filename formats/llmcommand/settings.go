package llmcommand

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Settings are the options of a server, as the words of its command set them.
type Settings struct {
	Model          string   // path, or name of Hugging Face, of the model that is loaded
	Names          []string // the names by which requests ask for it; the model if no option gives one
	TensorParallel int      // devices of a copy; 0 if the program takes all that it sees
	Copies         int      // of the model, each with devices of its own
	Sequences      int      // most sequences at once
	TokenBudget    int      // most tokens of one iteration
	ContextTokens  int      // most tokens of a prompt and its answer; 0 if no option says
	KVTokens       int64    // KV capacity; 0 if no option says
	KVBytes        int64    // the same in bytes per device
	MemoryShare    float64  // 0 if no option says
	Adapters       []Adapter
	NoPrefixCache  bool
	Priority       bool
	// Assumed are lines about what holds because the command does not say it.
	Assumed []string
}

// Adapter is a LoRA adapter: its name in requests, and its files.
type Adapter struct{ Name, Path string }

// Read returns the settings of a server that words start, on devices of one kind. An error is an *OptionError.
func (p *Program) Read(words []string, d Device) (*Settings, error) {
	r := &reader{program: p}
	if start, length := p.StartOf(words); start >= 0 {
		r.words = words[start+length:]
	} else {
		r.words = words // the image has the program as its entry point
	}
	s := &Settings{Model: r.model(), TensorParallel: int(r.wholeNumber(p.TensorParallel)), Copies: int(max(r.wholeNumber(p.DataParallel), 1)), KVTokens: r.wholeNumber(p.KVTokens), KVBytes: r.wholeNumber(p.KVBytes)}
	if s.Names, _ = values(r.words, p.ServedName); len(s.Names) == 0 {
		s.Names = []string{s.Model}
	}
	if p.TensorParallel != nil {
		s.TensorParallel = max(s.TensorParallel, 1)
	}
	if n := r.wholeNumber(p.PipelineParallel); n > 1 {
		r.fail(p.PipelineParallel[0], strconv.FormatInt(n, 10), "1: a profile has the times of models whose devices compute each layer together")
	}
	if r.readLimits(s, p.defaultsOf(d)); p.MemoryShare != nil {
		value, err := share(r.words, p.MemoryShare)
		r.note(err)
		s.MemoryShare = value
	}
	s.Adapters = r.adapters()
	s.NoPrefixCache = lastIndex(r.words, p.NoPrefixCache) > lastIndex(r.words, p.PrefixCache)
	priority, isSet := values(r.words, p.Priority)
	s.Priority = isSet && (len(priority) == 0 || slices.Contains(priority, "priority"))
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// reader reads the options of a command, and has the first error.
type reader struct {
	program *Program
	words   []string // behind the start
	err     error
}

// note records an error unless there was one before.
func (r *reader) note(err error) {
	if r.err == nil && err != nil {
		r.err = err
	}
}

// fail records the error of an option.
func (r *reader) fail(option, found, expected string) {
	r.note(&OptionError{option, found, expected})
}

// wholeNumber returns an option that is a whole number, or 0 if it is absent or wrong.
func (r *reader) wholeNumber(names []string) int64 {
	if names == nil {
		return 0
	}
	n, err := wholeNumber(r.words, names)
	r.note(err)
	return n
}

// model returns the model that is loaded: the first word if the program is called so and it is no option, or an option.
func (r *reader) model() string {
	if r.program.namesModel && len(r.words) > 0 && !isOption(r.words[0]) {
		return r.words[0]
	}
	model, err := text(r.words, r.program.Model)
	r.note(err)
	if model == "" {
		expected := "the model that is loaded"
		if r.program.namesModel {
			expected += ", first behind the command"
		}
		r.fail(r.program.Model[0], "nothing", expected)
	}
	return model
}

// maxTokenBudget is the largest token budget that a plan states.
const maxTokenBudget = 1 << 30

// readLimits sets the limits of a server, with the defaults where it has no such option. What is assumed is noted.
func (r *reader) readLimits(s *Settings, d defaults) {
	p := r.program
	s.Sequences, s.TokenBudget = int(r.wholeNumber(p.Sequences)), int(r.wholeNumber(p.TokenBudget))
	if value, err := text(r.words, p.Context); err != nil || value != "0" || !p.sharedContext { // 0 is the default of llama-server: the context of the model
		s.ContextTokens = int(r.wholeNumber(p.Context))
	}
	if s.TokenBudget > maxTokenBudget {
		r.fail(p.TokenBudget[0], strconv.Itoa(s.TokenBudget), fmt.Sprintf("at most %d", maxTokenBudget))
	}
	_, isUnified := values(r.words, p.KVUnified)
	if p.sharedContext && s.ContextTokens > 0 {
		s.KVTokens = int64(s.ContextTokens)
		if s.Sequences > 0 && !isUnified { // each sequence has its part
			s.ContextTokens /= s.Sequences
		}
	}
	if s.Sequences == 0 {
		s.Sequences = d.sequences
		s.assume("%s is absent: up to %d sequences at once, the default of %s", p.Sequences[0], d.sequences, p.commandSources)
	}
	if s.TokenBudget == 0 {
		s.TokenBudget = d.tokenBudget
		if value, _ := text(r.words, p.TokenBudget); value == "-1" && p == &SGLang {
			s.assume("%s is -1: the server does not divide prompts, which a plan does not know; planned with %d tokens in an iteration, the default of %s", p.TokenBudget[0], d.tokenBudget, p.commandSources)
			return
		}
		s.assume("%s is absent: up to %d tokens in an iteration, the default of %s", p.TokenBudget[0], d.tokenBudget, p.commandSources)
	}
}

func (s *Settings) assume(format string, args ...any) {
	s.Assumed = append(s.Assumed, fmt.Sprintf(format, args...))
}

// adapters returns the LoRA adapters: words NAME=PATH, objects in JSON with name and path or lists of them, or files, which are called as
// the file is without its ending.
func (r *reader) adapters() (list []Adapter) {
	words, isSet := values(r.words, r.program.Adapters)
	if isSet && len(words) == 0 {
		r.fail(r.program.Adapters[0], "nothing", "adapters")
	}
	for _, word := range words {
		if !r.program.listsAdapters {
			for file := range strings.SplitSeq(word, ",") {
				list = append(list, Adapter{strings.TrimSuffix(path.Base(file), path.Ext(file)), file})
			}
			continue
		}
		var objects []struct {
			Name string `json:"name"`
			Path string `json:"path"`
			Lora string `json:"lora_name"`
			File string `json:"lora_path"`
		}
		if strings.HasPrefix(word, "{") || strings.HasPrefix(word, "[") {
			array := word
			if strings.HasPrefix(word, "{") {
				array = "[" + word + "]"
			}
			err := json.Unmarshal([]byte(array), &objects)
			for _, o := range objects {
				if cmp.Or(o.Name, o.Lora) == "" {
					err = cmp.Or(err, errors.New("no name"))
				}
				list = append(list, Adapter{cmp.Or(o.Name, o.Lora), cmp.Or(o.Path, o.File)})
			}
			if err != nil {
				r.fail(r.program.Adapters[0], strconv.Quote(word), "NAME=PATH, an object with name and path, or a list of these")
			}
			continue
		}
		name, file, isNamed := strings.Cut(word, "=")
		if !isNamed {
			file = name
		}
		list = append(list, Adapter{name, file})
	}
	return list
}
