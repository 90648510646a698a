// Package wire is what the test machine and its host say to each other, one
// JSON object a line, on the machine's second serial port.
package wire

// Request is what a test asks of the host.
type Request struct {
	// Do is one of the constants below.
	Do string `json:"do"`
	// Disk names a disk; it stays in existence while it is detached.
	Disk string `json:"disk,omitempty"`
	// From is the disk whose content a new disk gets (Copy).
	From string `json:"from,omitempty"`
	// Serial is the disk's NVMe serial number (Attach).
	Serial string `json:"serial,omitempty"`
	// SizeBytes is the disk's size (Attach): a new disk is made with it, one
	// that exists is made larger.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// FailReads makes every read of the disk fail (Attach).
	FailReads bool `json:"failReads,omitempty"`
	// Code is the exit status of the tests (Exit).
	Code int `json:"code,omitempty"`
}

// What a test can ask for.
const (
	Attach   = "attach"   // plug an NVMe disk in
	Detach   = "detach"   // pull it out
	Copy     = "copy"     // make a disk with another one's content, as a restored snapshot is
	Checksum = "checksum" // what tells the content of the host's file of the disk
	Exit     = "exit"     // the tests have ended with Code
)

// Answer is the host's answer.
type Answer struct {
	Error    string `json:"error,omitempty"`
	Checksum string `json:"checksum,omitempty"`
}
