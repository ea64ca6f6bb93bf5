package samples

import (
	"fmt"
	"io"
	"strings"

	"inferplan/formats/document"
)

// Prompts are labelled questions for language models. The label is the right answer.
type Prompts struct {
	Labels []string
	Texts  []string
}

// maxPrompt bounds a prompt, in bytes.
const maxPrompt = 1 << 20

// ReadPromptsFile reads a file.
func ReadPromptsFile(path string) (*Prompts, error) {
	return open(path, "prompts", ReadPrompts)
}

// ReadPrompts reads CSV, plain or gzip, with the header label,prompt. Errors use name for the source.
func ReadPrompts(r io.Reader, name string) (*Prompts, error) {
	t, err := openTable(r, name)
	if err != nil {
		return nil, err
	}
	if err := t.Expect("label", "prompt"); err != nil {
		return nil, err
	}
	p := &Prompts{}
	if err := t.EachRow(func() error {
		label, prompt := strings.TrimSpace(t.Row[0]), t.Row[1]
		switch {
		case label == "":
			return t.Fail(0, "label", "nothing", "the answer that is right")
		case strings.TrimSpace(prompt) == "":
			return t.Fail(1, "prompt", "nothing", "a question")
		case len(prompt) > maxPrompt:
			return t.Fail(1, "prompt", fmt.Sprintf("%d bytes", len(prompt)), fmt.Sprintf("at most %d", maxPrompt))
		}
		p.Labels, p.Texts = append(p.Labels, strings.Clone(label)), append(p.Texts, strings.Clone(prompt))
		return nil
	}); err != nil {
		return nil, err
	}
	if len(p.Labels) == 0 {
		return nil, &document.Error{File: name, Found: "no row below the header", Expected: "a question per row"}
	}
	return p, nil
}
