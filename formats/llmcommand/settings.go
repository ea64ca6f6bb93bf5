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

// Read returns the settings of a server that words start, with the environment variables that it has, on devices of one
// kind. What the words say holds before the variables. An error is an *OptionError.
func (p *Program) Read(words []string, variables map[string]string, d Device) (*Settings, error) {
	if start, length := p.StartOf(words); start >= 0 {
		words = words[start+length:]
	} // else the image has the program as its entry point
	r := &reader{program: p}
	var unread []string
	r.options, unread, r.err = p.optionsOf(variables)
	options, arguments := p.parse(words)
	r.options, r.arguments = append(r.options, options...), arguments
	r.checkNames()
	s := &Settings{Model: r.model(), TensorParallel: int(r.wholeNumber(p.TensorParallel)), Copies: int(max(r.wholeNumber(p.DataParallel), 1)), KVTokens: r.wholeNumber(p.KVTokens), KVBytes: r.wholeNumber(p.KVBytes)}
	if s.Names = r.list(p.ServedName); len(s.Names) == 0 {
		s.Names = []string{s.Model}
	}
	if p.TensorParallel != nil {
		s.TensorParallel = max(s.TensorParallel, 1)
	}
	if n := r.wholeNumber(p.PipelineParallel); n > 1 {
		r.fail(p.PipelineParallel[0], strconv.FormatInt(n, 10), "1: a profile has the times of models whose devices compute each layer together")
	}
	r.readLimits(s, p.defaultsOf(d))
	r.divideAttention(s)
	s.MemoryShare = r.share(p.MemoryShare)
	s.Adapters = r.adapters()
	for i := range r.options { // the last holds
		switch o := &r.options[i]; {
		case o.isOneOf(p.NoPrefixCache):
			s.NoPrefixCache = true
		case o.isOneOf(p.PrefixCache):
			s.NoPrefixCache = false
		case o.isOneOf(p.unread) && !slices.Contains(unread, o.source):
			unread = append(unread, o.source)
		}
	}
	s.Priority = r.isPriority()
	if len(unread) > 0 {
		s.assume("not read: %s. The profile has to be of servers with the same settings", strings.Join(unread, ", "))
	}
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// reader reads the options of a command, and has the first error.
type reader struct {
	program   *Program
	options   []option // of variables, then of the command
	arguments []string
	err       error
}

// note records an error unless there was one before.
func (r *reader) note(err error) {
	if r.err == nil && err != nil {
		r.err = err
	}
}

// fail records the error of an option.
func (r *reader) fail(option, found, expected string) {
	r.note(&OptionError{Option: option, Found: found, Expected: expected})
}

// last returns the last option with one of names, or nil.
func (r *reader) last(names []string) *option {
	for i := range slices.Backward(r.options) {
		if r.options[i].isOneOf(names) {
			return &r.options[i]
		}
	}
	return nil
}

// checkNames records an error for a file with options, and for the beginning of a name that is read. The program would take
// it for the whole name.
func (r *reader) checkNames() {
	p := r.program
	if o := r.last(p.Config); o != nil {
		r.note(&OptionError{o.source, strconv.Quote(strings.Join(o.values, " ")), "options as arguments", "the file is not read: write its options behind the command"})
	}
	if !p.abbreviates {
		return
	}
	names := slices.Concat(p.Model, p.ServedName, p.TensorParallel, p.DataParallel, p.PipelineParallel, p.Sequences, p.TokenBudget, p.Context, p.KVTokens, p.KVBytes, p.MemoryShare, p.Adapters,
		p.NoPrefixCache, p.PrefixCache, p.Priority, p.DividedAttention, p.Config)
	for i := range r.options {
		o := &r.options[i]
		isWhole := !strings.HasPrefix(o.name, "--") || o.isOneOf(names)
		if whole := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, o.name) }); !isWhole && whole >= 0 {
			r.fail(o.source, "a part of a name", "the whole name, such as "+names[whole])
		}
	}
}

// text returns the value of an option, or "" if it is absent.
func (r *reader) text(names []string) (o *option, value string) {
	if o = r.last(names); o == nil {
		return nil, ""
	}
	if len(o.values) == 0 {
		r.fail(o.source, "nothing", "a value")
		return o, ""
	}
	return o, o.values[0]
}

// list returns the values of an option.
func (r *reader) list(names []string) []string {
	o, value := r.text(names)
	if o == nil || len(o.values) == 0 {
		return nil
	}
	if r.program.commaLists {
		return strings.Split(value, ",")
	}
	return o.values
}

// wholeNumber returns an option that is a whole number, or 0 if it is absent or wrong.
func (r *reader) wholeNumber(names []string) int64 {
	o, value := r.text(names)
	if value == "" {
		return 0
	}
	n, err := o.wholeNumber(value)
	r.note(err)
	return n
}

// share returns an option that is a part from 0 to 1, or 0 if it is absent or wrong.
func (r *reader) share(names []string) float64 {
	o, value := r.text(names)
	if value == "" {
		return 0
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || !(number > 0 && number <= 1) {
		r.fail(o.source, strconv.Quote(value), "a number above 0, up to 1")
	}
	return number
}

// isPriority reports whether the server's own queue is ordered by priority.
func (r *reader) isPriority() bool {
	o := r.last(r.program.Priority)
	if o == nil || r.program.mostValues(o.name) == 0 {
		return o != nil
	}
	_, value := r.text(r.program.Priority)
	if value != "priority" && value != "fcfs" {
		r.fail(o.source, strconv.Quote(value), "fcfs or priority")
	}
	return value == "priority"
}

// model returns the model that is loaded: the first argument if the program is called so, or an option.
func (r *reader) model() string {
	if r.program.namesModel && len(r.arguments) > 0 {
		return r.arguments[0]
	}
	_, model := r.text(r.program.Model)
	if model == "" {
		expected := "the model that is loaded"
		if r.program.namesModel {
			expected += ", first behind the command"
		}
		r.fail(r.program.Model[0], "nothing", expected)
	}
	return model
}

// divideAttention makes copies that share their devices one server. Its limits are those of all copies together, but for the
// KV capacity, which each has (ServerArgs._handle_data_parallelism, ModelRunner.dp_size and max_total_num_tokens of SGLang).
func (r *reader) divideAttention(s *Settings) {
	if r.last(r.program.DividedAttention) == nil || s.Copies == 1 { // one copy has nothing to divide
		return
	}
	if s.TensorParallel%s.Copies != 0 {
		r.fail(r.program.DataParallel[0], strconv.Itoa(s.Copies), fmt.Sprintf("a divisor of the %d devices of %s, which %s divides", s.TensorParallel, r.program.TensorParallel[0], r.program.DividedAttention[0]))
		return
	}
	if s.KVTokens <= maxWhole/int64(s.Copies) {
		s.KVTokens *= int64(s.Copies)
	}
	s.assume("%s: %d parts of the devices have their own attention and KV. The profile has to be of servers with it", r.program.DividedAttention[0], s.Copies)
	s.Copies = 1
}

// maxTokenBudget is the largest token budget that a plan states.
const maxTokenBudget = 1 << 30

// readLimits sets the limits of a server, with the defaults where it has no such option. What is assumed is noted.
func (r *reader) readLimits(s *Settings, d defaults) {
	p := r.program
	s.Sequences, s.TokenBudget = int(r.wholeNumber(p.Sequences)), int(r.wholeNumber(p.TokenBudget))
	if _, value := r.text(p.Context); value != "0" || !p.sharedContext { // 0 is the default of llama-server: the context of the model
		s.ContextTokens = int(r.wholeNumber(p.Context))
	}
	if s.TokenBudget > maxTokenBudget {
		r.fail(p.TokenBudget[0], strconv.Itoa(s.TokenBudget), fmt.Sprintf("at most %d", maxTokenBudget))
	}
	unified := r.last(slices.Concat(p.KVUnified, p.NoKVUnified))
	isUnified := unified != nil && unified.isOneOf(p.KVUnified)
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
		if _, value := r.text(p.TokenBudget); value == "-1" && p == &SGLang {
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
	for _, word := range r.list(r.program.Adapters) {
		if r.program.commaLists {
			list = append(list, Adapter{strings.TrimSuffix(path.Base(word), path.Ext(word)), word})
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
