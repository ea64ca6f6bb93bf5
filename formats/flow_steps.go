package formats

// PreSteps and PostSteps are what a server can do before and after a module's
// model (package executor/steps).
var (
	PreSteps  = []string{"client", "ocr-image", "ocr-line", "ocr-upright"}
	PostSteps = []string{"ocr-box", "ocr-boxes", "ocr-text"}
)

// checkSteps checks that a module's steps are known.
func (m *Module) checkSteps(c *checker, at string) {
	if m.Pre != "" {
		c.oneOf(at+".pre", m.Pre, PreSteps...)
	}
	if m.Post != "" {
		c.oneOf(at+".post", m.Post, PostSteps...)
	}
}
