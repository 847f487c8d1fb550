//! An object store that counts its requests, so that the cost of a write can be said in requests.
