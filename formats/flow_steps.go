package formats

import (
	"path/filepath"
	"strconv"

	"inferplan/formats/document"
)

// PreSteps and PostSteps are what a server can do before and after a module's
// model (package executor/steps).
var (
	PreSteps  = []string{"client", "ocr-image", "ocr-line", "ocr-upright", StepPassages, "text-words"}
	PostSteps = []string{"ocr-box", "ocr-boxes", "ocr-text"}
)

// StepPassages makes a prompt of a question and of the passages nearest to it.
const StepPassages = "passages"

// mostNearest bounds the passages of a prompt.
const mostNearest = 64

// checkSteps checks that a module's steps are known.
func (m *Module) checkSteps(c *document.Checker, at string) {
	if m.Pre != "" {
		c.OneOf(at+".pre", m.Pre, PreSteps...)
	}
	if m.Post != "" {
		c.OneOf(at+".post", m.Post, PostSteps...)
	}
	switch p := m.Passages; {
	case p == nil && m.Pre == StepPassages:
		c.Fail(at+".passages", "nothing", "the file that the step passages reads, and how many are taken", "passages: {file: passages.jsonl, nearest: 3}")
	case p == nil:
	case m.Pre != StepPassages:
		c.Fail(at+".passages", document.Quote(p.File), "nothing without the step that reads them", "pre: passages")
	case !filepath.IsLocal(p.File):
		c.Fail(at+".passages.file", document.Quote(p.File), "a file in the folder of the models", "")
	case p.Nearest < 1 || p.Nearest > mostNearest:
		c.Fail(at+".passages.nearest", document.Whole(int64(p.Nearest)), "1 to "+strconv.Itoa(mostNearest), "")
	}
}
