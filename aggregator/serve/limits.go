package serve

import "time"

const (
	// maxMessage bounds a received message (agent.proto).
	maxMessage = 1 << 20
	// maxHeaders bounds the headers of a call; a token of a few KiB fits.
	maxHeaders = 16 << 10
	// maxStreams bounds the calls that one connection has open. An agent has one, a person's program a few.
	maxStreams = 32
	// window is what a peer may send ahead on a stream, the least that HTTP/2 allows to be announced at once.
	window = 64 << 10

	// connectionTimeout bounds the handshakes of TLS and HTTP/2 and the wait for them; idleTimeout the life of a connection without calls.
	connectionTimeout = handshakeTurn + 10*time.Second
	idleTimeout       = 5 * time.Minute
	// keepaliveTime is how long a connection may be quiet before the peer is asked whether it lives; keepaliveTimeout how
	// long it may take to answer; keepaliveMin how often a peer may ask us, which agents and people do every 5 minutes.
	keepaliveTime    = 5 * time.Minute
	keepaliveTimeout = 20 * time.Second
	keepaliveMin     = 2 * time.Minute

	// maxVersion and maxInstance bound the words of a Hello, in bytes.
	maxVersion  = 128
	maxInstance = 64

	// maxPart bounds the items of one DetailPart (agent.proto); maxPending the lists that are asked of one agent at once.
	maxPart    = 512 << 10
	maxPending = 16
	// maxPartItems bounds them by number, and maxAnswer the items of a whole answer that is passed on, in bytes.
	maxPartItems = 64 << 10
	maxAnswer    = 16 << 20
	// maxName bounds a name in a question, in bytes, and maxAddresses those of a Service (agent.proto).
	maxName      = 1024
	maxAddresses = 32
	// listPiece is how many items of a list one message carries.
	listPiece = 5000
	// maxList bounds a fetched list, in bytes: two of them fit in one answer of 16 MiB, and 100,000 virtual servers take 3 MB.
	maxList = 6 << 20
	// maxListCache bounds the lists that are kept, in bytes.
	maxListCache = 64 << 20

	defaultPage = 200
	maxPage     = 1000
)

// timeouts says how long a Server waits for others.
type timeouts struct {
	// hello is how long a new stream may take to say Hello, report how long until its first Report.
	hello, report time.Duration
	// list is how long an agent may take to send a list.
	list time.Duration
	// detail is how long a question to an agent may take, asked and answered; slowReader how long its stream may wait for
	// whoever asked, over one whole answer.
	detail, slowReader time.Duration
	// drain is how long calls may take to end when the server stops.
	drain time.Duration
}

func defaultTimeouts() timeouts {
	return timeouts{hello: 10 * time.Second, report: 30 * time.Second, list: 8 * time.Second, drain: 5 * time.Second,
		detail: 40 * time.Second, slowReader: 5 * time.Second}
}
